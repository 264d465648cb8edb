/* Interactions of a model: a graph of those above a threshold, and a heat map. */
"use strict";
(function () {
  const place = document.getElementById("interactions");
  if (!place) return;
  const data = JSON.parse(document.getElementById("interactions-data").textContent);
  const byId = (name) => document.getElementById(`interactions-${name}`);
  const SIZE = 520, RADIUS = 180, CENTRE = SIZE / 2; // of the graph
  const MAX_HEAT = 30; // predictors of a heat map
  const largest = Math.max(...data.pairs.map((pair) => pair.strength)) || 1;

  const text = (pair) =>
    `${data.names[pair.i]} and ${data.names[pair.j]}: strength ${pair.strength.toFixed(3)}` +
    (pair.p === null ? "" : `, p = ${pair.p < 1e-4 ? pair.p.toExponential(1) : pair.p.toFixed(4)}`);

  function svg(tag, attributes, content = []) {
    const made = document.createElementNS(byId("graph").namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...[].concat(content));
    return made;
  }

  function point(i, radius) {
    const angle = (2 * Math.PI * i) / data.names.length - Math.PI / 2;
    return [CENTRE + radius * Math.cos(angle), CENTRE + radius * Math.sin(angle)];
  }

  function drawGraph(pairs) {
    const edges = pairs.map((pair) => {
      const [x1, y1] = point(pair.i, RADIUS), [x2, y2] = point(pair.j, RADIUS);
      const width = 1 + 7 * (pair.strength / largest);
      return svg("line", { x1, y1, x2, y2, "stroke-width": width }, svg("title", {}, text(pair)));
    });
    const nodes = data.names.map((name, i) => {
      const [cx, cy] = point(i, RADIUS), [x, y] = point(i, RADIUS + 14);
      const anchor = Math.abs(x - CENTRE) < 20 ? "middle" : x > CENTRE ? "start" : "end";
      const label = name.length > 16 ? `${name.slice(0, 15)}\u2026` : name;
      const title = svg("title", {}, name);
      return svg("g", {}, [
        svg("circle", { cx, cy, r: 5 }),
        svg("text", { x, y, "text-anchor": anchor, "dominant-baseline": "middle" }, [title, label]),
      ]);
    });
    byId("graph").replaceChildren(...edges, ...nodes);
  }

  function drawHeat(all, threshold) {
    const n = data.names.length;
    if (n > MAX_HEAT) return;
    const of = new Map(all.flatMap((p) => [[p.i * n + p.j, p], [p.j * n + p.i, p]]));
    const cell = (tag, content, attributes) => {
      const made = document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      made.append(content);
      return made;
    };
    const header = document.createElement("tr");
    header.append(cell("td", "", {}), ...data.names.map((name) => cell("th", name, { scope: "col" })));
    const rows = data.names.map((name, i) => {
      const row = document.createElement("tr");
      row.append(cell("th", name, { scope: "row" }));
      data.names.forEach((_, j) => {
        const pair = of.get(i * n + j);
        const made = cell("td", pair ? pair.strength.toFixed(2) : "", pair ? { title: text(pair) } : {});
        if (pair && pair.strength >= threshold) {
          made.style.setProperty("--share", `${Math.round(70 * pair.strength / largest)}%`);
        }
        row.append(made);
      });
      return row;
    });
    const head = document.createElement("thead"), body = document.createElement("tbody");
    head.append(header);
    body.append(...rows);
    byId("heat").replaceChildren(head, body);
  }

  function update() {
    const group = byId("group") ? byId("group").value : data.groups[0];
    const threshold = Number(byId("threshold").value);
    const all = data.pairs.filter((pair) => pair.group === group);
    const shown = all.filter((pair) => pair.strength >= threshold);
    drawGraph(shown);
    drawHeat(all, threshold);
    byId("count").textContent =
      `${shown.length} of ${all.length} interactions with a strength of at least ${threshold.toFixed(2)}.`;
  }

  byId("threshold").max = largest;
  place.addEventListener("input", update);
  update();
  place.hidden = false;
})();
