/* Interactions of a model: a graph of those above a threshold, a heat map, and the couplings of a
pair, which a click or the list chooses. */
"use strict";
(function () {
  const place = document.getElementById("interactions");
  if (!place) return;
  const data = JSON.parse(document.getElementById("interactions-data").textContent);
  const byId = (name) => document.getElementById(`interactions-${name}`);
  const SIZE = 520, RADIUS = 180, CENTRE = SIZE / 2; // of the graph
  const MAX_HEAT = 30; // predictors of a heat map
  const largest = Math.max(...data.pairs.map((pair) => pair.strength)) || 1;

  const IN_TOOLTIP = 4; // couplings
  const title = (pair) => `${data.names[pair.i]} and ${data.names[pair.j]}`;
  const probability = (p) => (p === null ? "" : p < 1e-4 ? p.toExponential(1) : p.toFixed(4));
  const decimals = (x) => (x === null ? "" : x.toFixed(3).replace("-", "\u2212"));

  function interval(coupling) {
    if (coupling.lower === null && coupling.upper === null) return "";
    return ` [${decimals(coupling.lower) || "\u2212\u221e"}, ${decimals(coupling.upper) || "\u221e"}]`;
  }

  /* What a tooltip says: the strength, and the largest couplings. */
  function text(pair) {
    const largestFirst = pair.couplings.slice().sort((a, b) => Math.abs(b.estimate) - Math.abs(a.estimate));
    const lines = largestFirst.slice(0, IN_TOOLTIP).map((own) =>
      `${own.levels}: ${decimals(own.estimate)}${interval(own)}` + (own.p === null ? "" : `, p = ${probability(own.p)}`));
    const more = largestFirst.length - lines.length;
    if (more > 0) lines.push(`and ${more} more`);
    const strength = `${title(pair)}: strength ${pair.strength.toFixed(3)}`;
    return [strength + (pair.p === null ? "" : `, p = ${probability(pair.p)}`), ...lines].join("\n");
  }

  /* Show the couplings of a pair; its number among all pairs. */
  function choose(number) {
    if (!byId("pair") || !data.pairs[number]) return;
    byId("pair").value = String(number);
    const rows = data.pairs[number].couplings.map((own) => {
      const row = document.createElement("tr");
      const cells = [decimals(own.estimate), decimals(own.lower), decimals(own.upper), probability(own.p)];
      const header = document.createElement("th");
      header.scope = "row";
      header.append(own.levels);
      row.append(header, ...cells.map((content) => {
        const made = document.createElement("td");
        made.append(content);
        return made;
      }));
      return row;
    });
    byId("couplings").replaceChildren(...rows);
  }

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
      const line = svg("line", { x1, y1, x2, y2, "stroke-width": width }, svg("title", {}, text(pair)));
      line.addEventListener("click", () => choose(data.pairs.indexOf(pair)));
      return line;
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
        if (pair) made.addEventListener("click", () => choose(data.pairs.indexOf(pair)));
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

  /* Put the pairs of the chosen group into the list. */
  function fillList(all) {
    if (!byId("pair")) return;
    const listed = all.filter((pair) => pair.couplings.length);
    byId("pair").replaceChildren(...listed.map((pair) => new Option(title(pair), data.pairs.indexOf(pair))));
    if (listed.length) choose(data.pairs.indexOf(listed[0]));
  }

  function update(event) {
    if (event && event.target === byId("pair")) return choose(Number(byId("pair").value));
    const group = byId("group") ? byId("group").value : data.groups[0];
    const threshold = Number(byId("threshold").value);
    const all = data.pairs.filter((pair) => pair.group === group);
    const shown = all.filter((pair) => pair.strength >= threshold);
    if (!event || event.target === byId("group")) fillList(all);
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
