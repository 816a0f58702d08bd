"use strict";
// The table of trials: sorted, filtered, and drawn only where it is looked at.
(function () {
  const MARGIN_ROWS = 20;
  const WHOLE_ROWS = 150;
  const PRINTED_ROWS = 200;
  const table = document.getElementById("trials-table");
  if (!table) return;
  const trials = JSON.parse(document.getElementById("trials-data").textContent);
  const scroller = document.getElementById("trials-scroll");
  const body = table.tBodies[0];
  const grouped = new Intl.NumberFormat("en-US");
  const collator = new Intl.Collator("en", { numeric: true });
  const statusAt = trials.columns.findIndex((column) => column.kind === "status");
  const state = { column: -1, ascending: true, status: "", terms: [], order: [], first: -1, last: -1, rowHeight: 30 };
  const spacers = [document.createElement("tr"), document.createElement("tr")];

  // --- cells -------------------------------------------------------------------------------------

  function shown(value, column) {
    if (value === null) return "–";
    if (column.kind === "status") return trials.statusLabels[value] || value;
    if (column.name === "key") return String(value).slice(0, 12);
    if (typeof value !== "number") return value;
    const size = Math.abs(value);
    if (Number.isInteger(value)) return size < 1e15 ? grouped.format(value) : value.toExponential(3);
    return size < 1e-3 || size >= 1e6 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
  }

  function fill(cell, value, column) {
    if (column.kind === "number") cell.className = "number";
    if (column.kind === "link" && typeof value === "string" && /^https?:\/\//i.test(value)) {
      const link = document.createElement("a");
      link.href = value;
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      link.textContent = value.replace(/\/+$/, "").split("/").pop().slice(0, 12);
      link.setAttribute("aria-label", "MLflow run " + link.textContent);
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

  function makeRow(position) {
    const row = document.createElement("tr");
    row.setAttribute("aria-rowindex", position + 2);
    trials.rows[state.order[position]].forEach((value, index) => {
      const cell = document.createElement("td");
      fill(cell, value, trials.columns[index]);
      row.append(cell);
    });
    return row;
  }

  // --- which rows are drawn ----------------------------------------------------------------------

  // Rows are of equal height, so two empty rows stand for all that are out of sight.
  function draw(first, last) {
    first = Math.max(0, first);
    last = Math.min(state.order.length, last);
    if (first === state.first && last === state.last) return;
    const fragment = document.createDocumentFragment();
    for (let position = first; position < last; position += 1) fragment.append(makeRow(position));
    [first, state.order.length - last].forEach((hidden, at) => {
      spacers[at].style.height = hidden * state.rowHeight + "px";
      spacers[at].hidden = hidden === 0;
    });
    body.replaceChildren(spacers[0], fragment, spacers[1]);
    Object.assign(state, { first, last });
    // A column that has been wide stays so: the table would jump while it is scrolled.
    Array.from(table.tHead.rows[0].cells).forEach((cell) => {
      const wide = cell.offsetWidth;
      if (wide > (parseFloat(cell.style.minWidth) || 0)) cell.style.minWidth = wide + "px";
    });
  }

  function drawVisible() {
    // A short table is there as a whole, where the browser's own search finds every row.
    if (state.order.length <= WHOLE_ROWS) {
      draw(0, state.order.length);
      return;
    }
    const top = Math.floor(scroller.scrollTop / state.rowHeight);
    const count = Math.ceil((scroller.clientHeight || 600) / state.rowHeight);
    if (state.first <= Math.max(0, top - 5) && Math.min(state.order.length, top + count + 5) <= state.last) return;
    draw(top - MARGIN_ROWS, top + count + MARGIN_ROWS);
  }

  function measure() {
    const row = body.querySelector("tr[aria-rowindex]");
    if (row && row.offsetHeight) state.rowHeight = row.getBoundingClientRect().height;
  }

  // --- filters -----------------------------------------------------------------------------------

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

  const NUMERIC = {
    "<": (a, b) => a < b,
    "<=": (a, b) => a <= b,
    ">": (a, b) => a > b,
    ">=": (a, b) => a >= b,
  };

  // "column=value", "column<value" and the like ask one column; anything else is looked for in all.
  function term(text) {
    const parts = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.*)$/.exec(text);
    const name = parts && parts[1].toLowerCase();
    const at = parts ? trials.columns.findIndex((c) => c.name.toLowerCase() === name || c.label.toLowerCase() === name) : -1;
    if (at < 0) {
      const wanted = text.replaceAll('"', "").toLowerCase();
      return (index) => textOf(index).includes(wanted);
    }
    const given = parts[3].replaceAll('"', "").toLowerCase();
    const numberOf = (text) => (text.trim() === "" ? NaN : Number(text.replaceAll(",", "")));
    const holds = NUMERIC[parts[2]];
    if (holds) {
      const limit = numberOf(given);
      return (index) => typeof trials.rows[index][at] === "number" && holds(trials.rows[index][at], limit);
    }
    const choices = given.split("|").map((text) => [text, numberOf(text)]);
    const is = (index) => {
      const value = trials.rows[index][at];
      if (value === null) return choices.some(([text]) => text === "none" || text === "–");
      const texts = [String(value).toLowerCase(), String(shown(value, trials.columns[at])).toLowerCase()];
      return texts[0] === given || choices.some(([text, number]) => value === number || texts.includes(text));
    };
    return parts[2] === "=" ? is : (index) => !is(index);
  }

  function compare(left, right) {
    const a = trials.rows[left][state.column];
    const b = trials.rows[right][state.column];
    if (a === null || b === null) return (a === null) - (b === null) || left - right;
    const both = typeof a === "number" && typeof b === "number";
    const result = both ? a - b : collator.compare(String(a), String(b));
    return (state.ascending ? result : -result) || left - right;
  }

  function update() {
    const all = trials.rows.map((row, index) => index);
    const asked = all.filter((index) => statusAt < 0 || !trials.unasked.includes(trials.rows[index][statusAt]));
    const listed = state.status === "" ? asked : all;
    state.order = listed.filter((index) =>
      (state.status === "" || trials.rows[index][statusAt] === state.status) && state.terms.every((test) => test(index)));
    if (state.column >= 0) state.order.sort(compare);
    table.setAttribute("aria-rowcount", state.order.length + 1);
    scroller.scrollTop = 0;
    state.first = state.last = -1;
    drawVisible();
    document.getElementById("shown-count").textContent =
      grouped.format(state.order.length) + " of " + grouped.format(listed.length) +
      (listed.length === 1 ? " trial" : " trials");
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

  // --- building it -------------------------------------------------------------------------------

  const head = document.createElement("tr");
  head.setAttribute("aria-rowindex", 1);
  trials.columns.forEach((column, index) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.dataset.label = column.label;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.label;
    button.title = "Sort by " + column.label;
    if (column.kind === "number") button.className = "number";
    button.addEventListener("click", () => sortBy(index));
    cell.append(button);
    head.append(cell);
  });
  table.tHead.append(head);
  spacers.forEach((row) => {
    row.className = "spacer";
    row.setAttribute("aria-hidden", "true");
  });
  document.getElementById("status-filter").addEventListener("change", (event) => {
    state.status = event.target.value;
    update();
  });
  const words = (text) => text.match(/(?:[^\s"]|"[^"]*"?)+/g) || [];
  const find = document.getElementById("text-filter");
  find.addEventListener("input", () => {
    state.terms = words(find.value).map(term);
    update();
  });
  update();
  measure();
  state.first = state.last = -1;
  drawVisible();
  let waiting = false;
  scroller.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawVisible();
    });
  }, { passive: true });
  new ResizeObserver(() => {
    measure();
    drawVisible();
  }).observe(scroller);

  window.addEventListener("beforeprint", () => draw(0, PRINTED_ROWS));
  window.addEventListener("afterprint", () => {
    state.first = state.last = -1;
    drawVisible();
  });
}());
