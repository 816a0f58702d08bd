"use strict";
// The figures: drawn when they come near, in the page's colours, in print in light ones.
(function () {
  const PRINT_WIDTH = 680;
  const NARROW = 480;
  const holders = Array.from(document.querySelectorAll("[data-figure]"));
  const source = document.getElementById("plotly-source");
  if (!holders.length || !source) return;
  const content = JSON.parse(document.getElementById("figures-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");
  // A served page makes the figure of what trains now.
  const made = window.hsweepFigures || {};
  const isOpen = (holder) => !holder.closest("details:not([open])");
  const drawn = new Set();
  const wired = new Set();

  // The library is half a second of work: for a page whose figures are all folded it is done later.
  function load() {
    if (window.Plotly) return true;
    const script = document.createElement("script");
    script.textContent = source.textContent;
    document.head.append(script);
    return Boolean(window.Plotly);
  }

  function themed(value, isDark) {
    if (!isDark) return value;
    if (typeof value === "string") return Object.hasOwn(content.dark, value) ? content.dark[value] : value;
    if (Array.isArray(value)) return value.map((item) => themed(item, isDark));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, isDark)]));
    }
    return value;
  }

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  // What tells names apart, or the unit of an axis, often stands at the end: the middle gives way.
  // Plotly reads "&lt;" as one letter.
  function squeezed(text, longest) {
    const bold = /^<b>(.*)<\/b>$/s.exec(text);
    if (bold) return "<b>" + squeezed(bold[1], longest) + "</b>";
    const letters = text.match(/&[a-z]+;|./gsu) || [];
    if (letters.length <= longest) return text;
    const tail = Math.floor(longest * 0.4);
    return letters.slice(0, longest - 1 - tail).join("") + "…" + letters.slice(-tail).join("");
  }

  // An axis says what it is and in which unit: its title goes on in a second line.
  function wrapped(text, longest) {
    const lines = [];
    text.split(" ").forEach((word) => {
      const line = lines.length ? lines[lines.length - 1] + " " + word : word;
      if (lines.length && squeezed(line, longest) === line) lines[lines.length - 1] = line;
      else lines.push(squeezed(word, longest));
    });
    return lines.join("<br>");
  }

  function fitted(axis, room) {
    const text = (axis && axis.title && axis.title.text) || "";
    const fitting = wrapped(text, Math.max(12, Math.floor(room / 8)));
    return fitting === text ? axis : Object.assign({}, axis, { title: Object.assign({}, axis.title, { text: fitting }) });
  }

  const named = (trace, longest) => (trace.name ? Object.assign({}, trace, { name: squeezed(trace.name, longest) }) : trace);

  function narrowed(layout, traces) {
    const kept = Object.assign({}, layout);
    if (layout.legend && traces.length > 3) {
      kept.legend = Object.assign({}, layout.legend, { entrywidth: 0.48, entrywidthmode: "fraction", font: { size: 11 } });
    }
    const axis = layout.yaxis;
    if (axis && Array.isArray(axis.ticktext)) {
      const ticktext = layout.meta ? layout.meta.narrow_rows : axis.ticktext;
      kept.yaxis = Object.assign({}, axis, { ticktext, tickfont: Object.assign({}, axis.tickfont, { size: 11 }) });
    }
    kept.annotations = (layout.annotations || []).map((note) => {
      return note.text.startsWith("<b>") ? Object.assign({}, note, { text: squeezed(note.text, 32) }) : note;
    });
    return kept;
  }

  function draw(holder, printing) {
    const name = holder.dataset.figure;
    const width = printing ? PRINT_WIDTH : holder.clientWidth;
    const own = made[name];
    const figure = themed(own ? own() : content.figures[name], dark.matches && !printing);
    const picks = (content.picks && content.picks[name]) || [];
    figure.data.forEach((trace) => {
      if (trace.meta === "picks") trace.text = Array.from(trace.customdata, (at) => escaped(picks[at].title));
    });
    let layout = Object.assign({ autosize: true }, figure.layout, { uirevision: "kept" });
    if (holder.clientWidth < NARROW && !printing) layout = narrowed(layout, figure.data);
    // A figure that catches every touch would keep a phone's page from scrolling.
    if (coarse.matches) layout.dragmode = false;
    if (printing) {
      const lower = holder.parentElement.classList.contains("wide") ? 330 : 250;
      Object.assign(layout, { autosize: false, width: PRINT_WIDTH, height: layout.height || lower });
    }
    const labels = ((layout.yaxis && layout.yaxis.ticktext) || []).map((text) => text.length * 7);
    layout.xaxis = fitted(layout.xaxis, width - Math.max(60, ...labels));
    layout.yaxis = fitted(layout.yaxis, holder.clientHeight - 60);
    const isOnePerLine = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length < 4;
    const longest = width < NARROW && !isOnePerLine ? Math.floor(width * 0.48 / 7.2) - 8 : 40;
    const isNew = !wired.has(holder);
    window.Plotly.react(holder, figure.data.map((trace) => named(trace, longest)), layout, { responsive: true, displayModeBar: false });
    drawn.add(holder);
    wired.add(holder);
    if (isNew) {
      // The named values are those of the whole figure: a part of it finds its own.
      holder.on("plotly_relayout", (change) => {
        const found = ["xaxis", "yaxis"].filter((axis) =>
          axis + ".range[0]" in change && layout[axis].type === "log" && layout[axis].tickvals);
        if (found.length) {
          window.Plotly.relayout(holder, Object.fromEntries(found.map((axis) => [axis + ".tickmode", "auto"])));
        }
      });
    }
    if (isNew && picks.length) {
      holder.classList.add("clickable");
      holder.on("plotly_click", (event) => pick(holder, picks[event.points[0].customdata]));
    }
  }

  // --- what a clicked point stands for -----------------------------------------------------------

  const isWeb = (address) => /^https?:\/\//i.test(address);

  function pick(holder, found) {
    if (!found) return;
    const links = found.links.filter(([, address]) => isWeb(address));
    const box = holder.parentElement.querySelector(".picked");
    const title = document.createElement("b");
    title.textContent = found.title;
    const parts = [title];
    links.forEach(([name, address], at) => {
      const link = document.createElement("a");
      Object.assign(link, { href: address, target: "_blank", rel: "noopener noreferrer", textContent: name });
      parts.push(at ? ", " : " MLflow: ", link);
    });
    const input = document.getElementById("text-filter");
    if (input) {
      const find = document.createElement("a");
      Object.assign(find, { href: "#trials", textContent: "in the table of trials" });
      parts.push(" · ", find);
      input.value = found.query;
      input.dispatchEvent(new Event("input"));
    }
    box.replaceChildren(...parts);
    box.hidden = false;
    if (links.length === 1) window.open(links[0][1], "_blank", "noopener");
  }

  // --- when they are drawn -----------------------------------------------------------------------

  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 30));

  // One figure at a time: the page answers in between.
  function drawNext() {
    const next = holders.find((holder) => !drawn.has(holder) && isOpen(holder));
    if (!next) return;
    draw(next, false);
    idle(drawNext);
  }

  function begin() {
    if (!load()) return;
    const near = new IntersectionObserver((entries) => {
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
        near.unobserve(entry.target);
        if (!drawn.has(entry.target)) draw(entry.target, false);
      });
    }, { rootMargin: "300px" });
    holders.forEach((holder) => near.observe(holder));
    idle(drawNext);
    document.addEventListener("toggle", (event) => {
      if (event.target.open) idle(drawNext);
    }, true);
  }

  function redraw() {
    // Those out of sight are drawn when their fold opens.
    drawn.forEach((holder) => (isOpen(holder) ? draw(holder, false) : drawn.delete(holder)));
  }

  dark.addEventListener("change", redraw);
  document.addEventListener("hsweep:changed", () => {
    drawn.forEach((holder) => {
      if (!made[holder.dataset.figure]) return;
      if (isOpen(holder)) draw(holder, false);
      else drawn.delete(holder);
    });
  });
  // The first figure is there when the page is loaded, for previews and pictures of it.
  const first = holders.find(isOpen);
  if (first && load()) draw(first, false);
  requestAnimationFrame(() => idle(begin, { timeout: 1000 }));

  window.addEventListener("beforeprint", () => {
    if (load()) holders.forEach((holder) => draw(holder, true));
  });
  window.addEventListener("afterprint", redraw);
}());
