"use strict";
// All trials over all axes and metrics: parallel coordinates and a scatter matrix. What is selected
// in them becomes conditions of the table of trials, and what the table shows stands out in them.
// They are drawn as SVG: plotly's own traces for this compile code, which the page's policy forbids.
(function () {
  const MOST_LINES = 1500;
  const MOST_POINTS = 300;
  const { trials, filter } = window.hsweep || {};
  const spec = trials && trials.explored;
  if (!spec) return;
  const scales = spec.scales;
  const metric = scales[scales.length - 1];
  const places = scales.map((scale) => {
    if (scale.kind !== "names") return null;
    return new Map(scale.values.map((value, at) => [value, at]));
  });

  function place(number, row) {
    const scale = scales[number];
    const value = trials.rows[row][scale.at];
    if (value === null) return null;
    if (scale.kind === "names") return places[number].get(String(value));
    return scale.kind === "log" ? Math.log10(value) : value;
  }

  // Spread evenly over the metric, so that the best and the worst are among them.
  const ranked = trials.rows.map((row, at) => at)
    .filter((at) => trials.rows[at][metric.at] !== null)
    .sort((a, b) => trials.rows[a][metric.at] - trials.rows[b][metric.at] || a - b);
  const rankOf = new Map(ranked.map((row, rank) => [row, rank]));

  function evenly(most) {
    if (ranked.length <= most) return ranked;
    return Array.from({ length: most }, (_, at) => ranked[Math.round(at * (ranked.length - 1) / (most - 1))]);
  }

  const lines = evenly(MOST_LINES);
  const points = evenly(MOST_POINTS);
  const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const isShown = () => (filter.shown === null ? () => true : (row) => filter.shown.has(row));

  // --- parallel coordinates ----------------------------------------------------------------------

  const share = (scale, at) => (scale.high > scale.low ? (at - scale.low) / (scale.high - scale.low) : 0.5);

  // A phone has room for five.
  const inParallel = (width) =>
    (width < 620 ? [...scales.keys()].filter((at) => at < 4 || at === scales.length - 1) : [...scales.keys()]);

  function bundle(numbers, rows, colour, width, opacity) {
    const x = [];
    const y = [];
    rows.forEach((row) => {
      numbers.forEach((number, column) => {
        const at = place(number, row);
        x.push(column);
        y.push(at === null ? null : share(scales[number], at));
      });
      x.push(null);
      y.push(null);
    });
    return { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", showlegend: false, opacity, line: { color: colour, width } };
  }

  function parallel(width) {
    const numbers = inParallel(width);
    const last = numbers.length - 1;
    const shown = isShown();
    const count = spec.shades.length;
    const bins = spec.shades.map(() => []);
    const rest = [];
    lines.forEach((row) => {
      if (shown(row)) bins[Math.min(count - 1, Math.floor(rankOf.get(row) * count / ranked.length))].push(row);
      else rest.push(row);
    });
    const opacity = Math.max(0.15, Math.min(0.7, 60 / (lines.length - rest.length || 1)));
    const end = (column) => (column === 0 ? "left" : column === last ? "right" : "center");
    const cut = (text, longest) => escaped(text.length > longest ? text.slice(0, longest - 1) + "…" : text);
    const annotations = numbers.flatMap((number, column) => [
      {
        x: column, y: 1, yref: "paper", yanchor: "bottom", xanchor: end(column), showarrow: false, yshift: 4,
        text: "<b>" + cut(scales[number].label, Math.max(7, Math.floor(width / numbers.length / 9) - 1)) + "</b>",
      },
      ...scales[number].ticks.map(([at, name]) => ({
        x: column, y: share(scales[number], at), showarrow: false, xshift: column === last ? -3 : 3, font: { size: 11 },
        xanchor: column === last ? "right" : "left", bgcolor: spec.page, borderpad: 0, text: cut(name, 14),
      })),
    ]);
    const bare = { showgrid: false, zeroline: false, showticklabels: false, fixedrange: true };
    return {
      data: [
        bundle(numbers, rest, spec.rest, 1, 0.6),
        ...bins.map((rows, at) => bundle(numbers, rows, spec.shades[at], 1.3, opacity)).reverse(),
      ],
      layout: {
        template: "none", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: 400, font: spec.font,
        dragmode: "select", selections: [], margin: { l: 10, r: 10, t: 30, b: 10 }, annotations,
        xaxis: { ...bare, range: [-0.05, last + 0.05] }, yaxis: { ...bare, range: [-0.04, 1.02] },
        shapes: numbers.map((number, column) => ({
          type: "line", x0: column, x1: column, y0: 0, y1: 1, line: { color: spec.line, width: 1.2 },
        })),
      },
    };
  }

  // --- scatter matrix ----------------------------------------------------------------------------

  const axisName = (letter, at) => letter + "axis" + (at ? at + 1 : "");
  const shownInMatrix = (width) => (width < 620 ? spec.matrix.slice(-3) : spec.matrix);

  function matrix(width) {
    const numbers = shownInMatrix(width);
    const size = numbers.length - 1;
    const shown = isShown();
    const selected = points.flatMap((row, at) => (shown(row) ? [at] : []));
    const texts = points.map((row) => scales
      .map((scale) => (trials.rows[row][scale.at] === null ? "" : scale.label + " " + trials.rows[row][scale.at]))
      .filter(Boolean).map(escaped).join("<br>"));
    const layout = {
      template: "none", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: spec.font, showlegend: false,
      dragmode: "select", selections: [], hovermode: "closest", height: Math.max(260, 60 + 130 * size), margin: { l: 8, r: 8, t: 8, b: 8 },
    };
    const data = [];
    const gap = 0.04;
    const span = (at) => [at / size + (at ? gap / 2 : 0), (at + 1) / size - (at < size - 1 ? gap / 2 : 0)];
    for (let at = 0; at < size; at += 1) {
      const [x, y] = [scales[numbers[at]], scales[numbers[at + 1]]];
      const axis = (scale, many) => {
        const room = 0.06 * (scale.high - scale.low || 1);
        const every = Math.max(1, Math.ceil(scale.ticks.length / many));
        const ticks = scale.ticks.filter((tick, index) => index % every === 0);
        return {
          range: [scale.low - room, scale.high + room], tickvals: ticks.map(([where]) => where), tickfont: { size: 10 },
          ticktext: ticks.map(([, name]) => escaped(name.length > 10 ? name.slice(0, 9) + "…" : name)), zeroline: false,
          automargin: true, gridcolor: spec.rest, title: { text: escaped(scale.label), font: { size: 12 }, standoff: 4 },
        };
      };
      layout[axisName("x", at)] = { ...axis(x, width / size / 45), domain: span(at), anchor: "y" + (size > 1 ? size : "") };
      layout[axisName("y", at)] = { ...axis(y, 6), domain: span(size - 1 - at), anchor: "x" };
      for (let left = 0; left <= at; left += 1) {
        data.push({
          type: "scatter", mode: "markers", xaxis: "x" + (left ? left + 1 : ""), yaxis: "y" + (at ? at + 1 : ""),
          x: points.map((row) => place(numbers[left], row)), y: points.map((row) => place(numbers[at + 1], row)),
          text: texts, hovertemplate: "%{text}<extra></extra>", selectedpoints: selected,
          marker: { color: spec.point, size: 5 }, selected: { marker: { opacity: 0.75 } }, unselected: { marker: { opacity: 0.07 } },
        });
      }
    }
    return { data, layout };
  }

  // --- brushing ----------------------------------------------------------------------------------

  // What the table is asked for a part of a scale: the values that lie in it, or its ends.
  function condition(number, from, to) {
    const scale = scales[number];
    const name = trials.columns[scale.at].name;
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    if (low <= scale.low && scale.high <= high) return { name, text: "" };
    if (scale.values.length) {
      const at = (value, index) => (scale.kind === "names" ? index : scale.kind === "log" ? Math.log10(value) : value);
      const inside = scale.values.filter((value, index) => low <= at(value, index) && at(value, index) <= high);
      const wanted = inside.join("|").replaceAll('"', "");
      return { name, text: inside.length ? (/\s/.test(wanted) ? name + '="' + wanted + '"' : name + "=" + wanted) : "" };
    }
    const value = (at) => Number((scale.kind === "log" ? 10 ** at : at).toPrecision(3));
    return { name, text: name + ">=" + value(low) + " " + name + "<=" + value(high) };
  }

  function brushParallel({ x, y }, width) {
    const [from, to] = [Math.min(...x), Math.max(...x)];
    return inParallel(width).flatMap((number, column) => {
      const scale = scales[number];
      if (column < from - 0.12 || column > to + 0.12) return [];
      const back = (at) => scale.low + at * (scale.high - scale.low);
      return [condition(number, back(Math.min(...y)), back(Math.max(...y)))];
    });
  }

  function brushMatrix(range, width) {
    const numbers = shownInMatrix(width);
    return Object.entries(range).map(([key, [from, to]]) => {
      const at = Number(key.slice(1) || 1) - 1;
      return condition(numbers[key[0] === "x" ? at : at + 1], from, to);
    });
  }

  function wire(holder, conditions) {
    holder.on("plotly_selected", (event) => {
      if (event && event.range) filter.ask(conditions(event.range, holder.clientWidth));
    });
    holder.on("plotly_deselect", () => filter.ask(scales.map((scale) => ({ name: trials.columns[scale.at].name, text: "" }))));
  }

  window.hsweep.made = {
    parallel: { figure: parallel, wire: (holder) => wire(holder, brushParallel) },
    matrix: { figure: matrix, wire: (holder) => wire(holder, brushMatrix) },
  };
  const note = document.getElementById("explored-note");
  if (note && ranked.length > MOST_POINTS) {
    const grouped = new Intl.NumberFormat("en-US");
    note.textContent = " Drawn are " + grouped.format(lines.length) + " lines and " + grouped.format(points.length) +
      " points of " + grouped.format(ranked.length) + " trials, spread evenly; the table has all.";
  }
}());
