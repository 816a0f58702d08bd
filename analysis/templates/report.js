"use strict";
(function () {
  const CHUNK = 100;
  const PRINT_WIDTH = 680;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");

  // --- figures -----------------------------------------------------------------------------------

  const figures = read("figures-data");
  const holders = Array.from(document.querySelectorAll("[data-figure]"));

  function themed(value, isDark) {
    if (!isDark) return value;
    if (typeof value === "string") return Object.hasOwn(figures.dark, value) ? figures.dark[value] : value;
    if (Array.isArray(value)) return value.map((item) => themed(item, isDark));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, isDark)]));
    }
    return value;
  }

  function draw(holder, printing) {
    const figure = themed(figures.figures[holder.dataset.figure], dark.matches && !printing);
    const layout = Object.assign({ autosize: true }, figure.layout, { uirevision: "kept" });
    if (layout.height) holder.style.height = layout.height + "px";
    // In two columns a phone's long legend leaves room for the picture.
    if (holder.clientWidth < 520 && layout.legend && figure.data.length > 3) {
      layout.legend = Object.assign({}, layout.legend, { entrywidth: 0.48, entrywidthmode: "fraction", font: { size: 11 } });
    }
    // A picture that catches every touch would keep a phone's page from scrolling.
    if (coarse.matches) layout.dragmode = false;
    if (printing) Object.assign(layout, { autosize: false, width: PRINT_WIDTH, height: holder.clientHeight });
    return window.Plotly.react(holder, figure.data, layout, { responsive: true, displayModeBar: false });
  }

  const drawAll = (printing) => holders.forEach((holder) => draw(holder, printing));

  function findTrials(event) {
    const query = event.points[0].customdata;
    const input = document.getElementById("text-filter");
    if (!input || !Array.isArray(query) || typeof query[0] !== "string") return;
    input.value = query[0];
    input.dispatchEvent(new Event("input"));
    document.getElementById("trials").scrollIntoView();
  }

  if (holders.length && window.Plotly) {
    drawAll(false);
    holders.filter((holder) => holder.dataset.figure.startsWith("front-")).forEach((holder) => {
      holder.on("plotly_click", findTrials);
    });
    dark.addEventListener("change", () => drawAll(false));
  }

  // --- table of trials ---------------------------------------------------------------------------

  const table = document.getElementById("trials-table");
  const trials = table ? read("trials-data") : { columns: [], rows: [] };
  const scroller = document.getElementById("trials-scroll");
  const state = { column: -1, ascending: true, status: "", terms: [], order: [], rendered: 0 };
  const grouped = new Intl.NumberFormat("en-US");
  const statusAt = trials.columns.findIndex((column) => column.kind === "status");

  function shown(value, column) {
    if (value === null) return "–";
    if (column.kind === "status") return trials.statusLabels[value] || value;
    if (column.name === "key") return String(value).slice(0, 12);
    if (typeof value !== "number") return value;
    const size = Math.abs(value);
    if (Number.isInteger(value)) return size < 1e15 ? grouped.format(value) : value.toExponential(3);
    const text = size < 1e-3 || size >= 1e6 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
    return text;
  }

  function fill(cell, value, column) {
    if (column.kind === "number") cell.className = "number";
    if (column.kind === "link" && typeof value === "string" && /^https?:\/\//i.test(value)) {
      const link = document.createElement("a");
      link.href = value;
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      link.textContent = value.replace(/\/+$/, "").split("/").pop().slice(0, 12);
      cell.append(link);
      return;
    }
    cell.textContent = shown(value, column);
    if (value !== null) cell.title = String(value);
    if (column.kind === "status") {
      cell.classList.add("status");
      if (Object.hasOwn(trials.statusLabels, value)) cell.classList.add(value);
    }
  }

  function renderMore(count) {
    const body = table.tBodies[0];
    const fragment = document.createDocumentFragment();
    const end = Math.min(state.rendered + count, state.order.length);
    for (; state.rendered < end; state.rendered += 1) {
      const row = document.createElement("tr");
      trials.columns.forEach((column, index) => {
        const cell = document.createElement("td");
        fill(cell, trials.rows[state.order[state.rendered]][index], column);
        row.append(cell);
      });
      fragment.append(row);
    }
    body.append(fragment);
  }

  const texts = [];
  function textOf(index) {
    if (texts[index] === undefined) {
      texts[index] = trials.rows[index]
        .map((value, at) => (at === statusAt ? value + " " + shown(value, trials.columns[at]) : value === null ? "" : value))
        .join("\n")
        .toLowerCase();
    }
    return texts[index];
  }

  // "column=value" asks for exactly that value; anything else is looked for in every cell.
  function term(text) {
    const at = text.indexOf("=");
    const column = at > 0 ? trials.columns.findIndex((c) => c.name.toLowerCase() === text.slice(0, at).toLowerCase()) : -1;
    if (column < 0) return (index) => textOf(index).includes(text.toLowerCase());
    const wanted = text.slice(at + 1).toLowerCase();
    return (index) => {
      const value = trials.rows[index][column];
      return value !== null && (String(value).toLowerCase() === wanted || (wanted !== "" && Number(wanted) === value));
    };
  }

  function compare(left, right) {
    const a = trials.rows[left][state.column];
    const b = trials.rows[right][state.column];
    if (a === null || b === null) return (a === null) - (b === null) || left - right;
    const both = typeof a === "number" && typeof b === "number";
    const result = both ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return (state.ascending ? result : -result) || left - right;
  }

  function update() {
    state.order = trials.rows.map((row, index) => index).filter((index) =>
      (state.status === "" || trials.rows[index][statusAt] === state.status) && state.terms.every((test) => test(index)));
    if (state.column >= 0) state.order.sort(compare);
    table.tBodies[0].replaceChildren();
    state.rendered = 0;
    scroller.scrollTop = 0;
    renderMore(CHUNK);
    document.getElementById("shown-count").textContent =
      grouped.format(state.order.length) + " of " + grouped.format(trials.rows.length) +
      (trials.rows.length === 1 ? " trial" : " trials");
  }

  function sortBy(index) {
    state.ascending = state.column === index ? !state.ascending : true;
    state.column = index;
    Array.from(table.tHead.rows[0].cells).forEach((cell, at) => {
      if (at === index) cell.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
    update();
  }

  if (table) {
    const head = document.createElement("tr");
    trials.columns.forEach((column, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.label;
      if (column.kind === "number") button.className = "number";
      button.addEventListener("click", () => sortBy(index));
      cell.append(button);
      head.append(cell);
    });
    table.tHead.append(head);
    document.getElementById("status-filter").addEventListener("change", (event) => {
      state.status = event.target.value;
      update();
    });
    document.getElementById("text-filter").addEventListener("input", (event) => {
      state.terms = event.target.value.split(/\s+/).filter(Boolean).map(term);
      update();
    });
    update();
    new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting) && state.rendered < state.order.length) renderMore(CHUNK);
    }, { root: scroller, rootMargin: "600px" }).observe(document.getElementById("trials-end"));
  }

  // --- print -------------------------------------------------------------------------------------

  const closed = [];
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not([open])").forEach((item) => {
      item.open = true;
      closed.push(item);
    });
    if (holders.length && window.Plotly) drawAll(true);
  });
  window.addEventListener("afterprint", () => {
    closed.splice(0).forEach((item) => { item.open = false; });
    if (holders.length && window.Plotly) drawAll(false);
  });
}());
