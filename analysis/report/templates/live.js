"use strict";
// A served page follows its study: numbers, tables and curves of what happens are put in as they
// come; where there are new results the page is loaded again, as it was left.
(function () {
  const QUIET_MILLISECONDS = 8000;
  const source = document.getElementById("live-data");
  const settings = JSON.parse(source.textContent);
  const place = "hsweep:" + location.pathname;
  let now = settings.now;
  let touched = -Infinity;

  // --- what happens ------------------------------------------------------------------------------

  const shown = (name) => document.querySelector("#now ." + name);

  function cell(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (kind === "th") made.scope = "col";
    if (kind === "td" && text.length > 28) made.className = text.length > 120 ? "long prose-cell" : "long";
    return made;
  }

  function fill(id, table, none) {
    const body = document.querySelector("#" + id + " tbody");
    document.querySelector("#" + id + " tr").replaceChildren(
      ...(table.rows.length ? table.header.map((text) => cell("th", text)) : []));
    body.replaceChildren(...table.rows.map((row) => {
      const line = document.createElement("tr");
      line.replaceChildren(...row.map((text) => cell("td", text)));
      return line;
    }));
    document.getElementById(id + "-more").textContent = table.rows.length ? table.more : none;
  }

  function show() {
    shown("now-state").textContent = now.state;
    shown("now-state").dataset.state = now.state;
    shown("now-counts").textContent = now.counts;
    shown("now-share").value = now.share;
    shown("now-round").textContent = now.round;
    shown("now-time").textContent = now.time;
    fill("training-table", now.training, "No trial is in training.");
    fill("lately-table", now.lately, "No trial has ended.");
    document.getElementById("figure-growing").hidden = !now.curves.some((curve) => curve.units.length);
    document.dispatchEvent(new Event("hsweep:changed"));
  }

  function growing() {
    const values = now.curves.flatMap((curve) => curve.values).filter((value) => value > 0);
    // Within few decades their powers alone would be one tick, or none.
    const decades = now.log && values.length ? Math.log10(Math.max(...values) / Math.min(...values)) : 0;
    const shade = (at) => settings.shades[at % settings.shades.length];
    return {
      data: now.curves.map((curve, at) => ({
        type: "scatter", mode: curve.units.length < 40 ? "lines+markers" : "lines", name: curve.name,
        x: curve.units, y: curve.values, line: { color: shade(at), width: 1.8 }, marker: { size: 5 },
        hovertemplate: "%{x}: %{y:.4g}<extra>" + escaped(curve.name) + "</extra>",
      })),
      layout: Object.assign({}, settings.layout, {
        xaxis: Object.assign({}, settings.layout.xaxis, {
          title: { text: escaped(now.unit) },
          dtick: Math.max(0, ...now.curves.flatMap((curve) => curve.units)) <= 8 ? 1 : undefined,
        }),
        yaxis: Object.assign({}, settings.layout.yaxis, {
          title: { text: escaped(now.metric) }, type: now.log ? "log" : "linear",
          dtick: decades > 2 ? 1 : decades > 0.7 ? "D2" : undefined,
        }),
      }),
    };
  }

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  window.hsweepFigures = { growing };

  // --- new results -------------------------------------------------------------------------------

  const fields = ["text-filter", "status-filter"];

  function remember() {
    const found = { at: window.scrollY, open: [], fields: {} };
    document.querySelectorAll("details[open]").forEach((fold) => found.open.push(fold.id));
    fields.forEach((id) => {
      const field = document.getElementById(id);
      if (field) found.fields[id] = field.value;
    });
    sessionStorage.setItem(place, JSON.stringify(found));
  }

  function recall() {
    const text = sessionStorage.getItem(place);
    sessionStorage.removeItem(place);
    if (!text) {
      if (now.state === "running") document.getElementById("training").open = true;
      return;
    }
    const found = JSON.parse(text);
    found.open.forEach((id) => {
      const fold = document.getElementById(id);
      if (fold) fold.open = true;
    });
    Object.entries(found.fields).forEach(([id, value]) => {
      const field = document.getElementById(id);
      if (!field || !value) return;
      field.value = value;
      field.dispatchEvent(new Event("input"));
      field.dispatchEvent(new Event("change"));
    });
    window.scrollTo(0, found.at);
  }

  function renew() {
    remember();
    location.reload();
  }

  // Nobody's selection, typing or reading is disturbed: then a button says that there is more.
  function news() {
    const typing = document.activeElement && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    const isQuiet = performance.now() - touched > QUIET_MILLISECONDS && !typing && getSelection().isCollapsed;
    if (isQuiet) renew();
    else shown("now-news").hidden = false;
  }

  ["pointerdown", "keydown", "wheel", "touchstart"].forEach((kind) => {
    window.addEventListener(kind, () => { touched = performance.now(); }, { passive: true });
  });
  document.getElementById("renew").addEventListener("click", renew);
  if ("scrollRestoration" in history) history.scrollRestoration = "manual";

  show();
  recall();
  const events = new EventSource(settings.events);
  events.addEventListener("message", (event) => {
    const latest = JSON.parse(event.data);
    shown("now-lost").hidden = true;
    now = Object.assign({}, now, latest.now);
    show();
    if (latest.version !== settings.version) news();
  });
  events.addEventListener("error", () => { shown("now-lost").hidden = false; });
  window.addEventListener("pagehide", () => events.close());
}());
