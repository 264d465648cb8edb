/* The form of the what-if section: answers, class proportions and costs in; bars, decision and
contributions out. Its state is also in the fragment of the page's address, so that a link reopens
it. The elements are made by bbl/report/explore/section.py. */
"use strict";
(function () {
  const { UNKNOWN } = whatif;
  const section = document.getElementById("whatif");
  if (!section) return;
  const model = whatif.load(document.getElementById("whatif-model").textContent);
  const hasClasses = model.response !== null;
  const K = model.groups.length;
  const SHOWN = 12; // contributions with their own bar
  const byId = (name) => document.getElementById(`whatif-${name}`);
  const all = (selector) => Array.from(section.querySelectorAll(selector));

  // `group` and `against` are explained, NaN for the most probable and the next; without classes,
  // `target` is the predictor whose levels get probabilities
  const state = { answers: [], priors: [], costs: [], group: NaN, against: NaN, target: 0 };

  function reset() {
    state.answers = model.starts[0].answers.slice();
    state.priors = model.priors.slice();
    state.costs = model.groups.map((_, k) => model.groups.map((_, g) => (k === g ? 0 : 1)));
    state.group = state.against = NaN;
    state.target = 0;
  }

  const isNumber = (i) => whatif.isNumber(model, i);
  const isUnknown = (i) => whatif.isUnknown(model, state.answers, i);

  /* Whether more predictors are unknown than can be summed over. */
  function hasTooManyUnknown() {
    return whatif.countUnknown(model, state.answers, true) > model.unknown.most
      && whatif.countUnknown(model, state.answers) < state.answers.length;
  }

  // ---- the state as a fragment of the address

  function toFragment() {
    const parameters = new URLSearchParams();
    // a number has "p" for its decimal point, as the point separates answers
    const text = (a, i) => (isUnknown(i) ? "u" : String(a).replace(".", "p"));
    parameters.set("whatif", state.answers.map(text).join("."));
    if (!hasClasses) parameters.set("of", state.target);
    else {
      if (state.priors.some((p, k) => p !== model.priors[k])) parameters.set("priors", state.priors.join("_"));
      if (state.costs.some((row, k) => row.some((c, g) => c !== (k === g ? 0 : 1)))) {
        parameters.set("costs", state.costs.flat().join("_"));
      }
      if (!isNaN(state.group)) parameters.set("of", state.group);
      if (!isNaN(state.against)) parameters.set("against", state.against);
    }
    return `#${parameters}`;
  }

  /* Take the state from the fragment; return whether it has one. Parts that do not fit the model
  are ignored. */
  function fromFragment() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    if (!parameters.has("whatif")) return false;
    reset();
    parameters.get("whatif").split(".").forEach((text, i) => {
      if (i >= state.answers.length) return;
      const none = isNumber(i) ? null : UNKNOWN;
      const answer = text === "u" ? none : text === "" ? NaN : Number(text.replace("p", "."));
      if (isAllowed(i, answer)) state.answers[i] = answer;
    });
    const numbers = (name) => (parameters.get(name) || "").split("_").map(Number);
    const priors = numbers("priors"), costs = numbers("costs");
    const total = priors.reduce((a, b) => a + b, 0);
    if (priors.length === K && priors.every((p) => p >= 0) && Math.abs(total - 1) < 1e-6) state.priors = priors;
    if (costs.length === K * K && costs.every((c) => c >= 0 && isFinite(c))) {
      state.costs = model.groups.map((_, k) => costs.slice(k * K, (k + 1) * K));
    }
    const index = (name, n) => {
      const value = parameters.has(name) ? Number(parameters.get(name)) : NaN;
      return Number.isInteger(value) && value >= 0 && value < n ? value : NaN;
    };
    if (hasClasses) {
      state.group = index("of", K);
      state.against = index("against", K);
    } else state.target = index("of", model.predictors.length) || 0;
    return true;
  }

  function isAllowed(i, answer) {
    if (isNumber(i)) return answer === null ? !model.unknown.never.includes(i) : Number.isFinite(answer);
    if (answer === UNKNOWN) return !model.unknown.never.includes(i) && model.unknown.most > 0;
    return Number.isInteger(answer) && answer >= 0 && answer < model.predictors[i].levels.length;
  }

  // ---- the elements

  const percent = (p) => `${(100 * p).toFixed(p > 0 && p < 0.001 ? 3 : 1)}%`;
  // no minus before 0.000
  const decimals = (x) => (Math.abs(x) < 0.0005 ? 0 : x).toFixed(3).replace("-", "\u2212");

  function element(tag, content, attributes = {}) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(content);
    return made;
  }

  /* A cell with a bar between two proportions of its width. */
  function barCell(from, to, kind) {
    const bar = element("div", "", { class: `bar ${kind}` });
    bar.style.marginLeft = `${100 * Math.min(from, to)}%`;
    bar.style.width = `${100 * Math.abs(to - from)}%`;
    return element("td", bar, { class: "track", "aria-hidden": "true" });
  }

  function showBars(names, p) {
    const best = p === null ? -1 : p.indexOf(Math.max(...p));
    const rows = names.map((name, k) => {
      const row = element("tr", element("th", name, { scope: "row" }));
      row.append(barCell(0, p === null ? 0 : p[k], k === best ? "best" : ""));
      row.append(element("td", p === null ? "" : percent(p[k])));
      return row;
    });
    byId("bars").replaceChildren(...rows);
  }

  /* Position of the largest value; of the first if others are equal up to rounding. */
  function firstLargest(values) {
    const largest = Math.max(...values);
    return values.findIndex((v) => v >= largest - 1e-12 * Math.max(1, Math.abs(largest)));
  }

  function decisionText(p) {
    const costs = whatif.expectedCosts(p, state.costs);
    const isDefault = state.costs.every((row, k) => row.every((c, g) => c === (k === g ? 0 : 1)));
    if (isDefault) {
      const k = firstLargest(p);
      return `Most probable: ${model.groups[k]} (${percent(p[k])}).`;
    }
    const scale = Math.max(...state.costs.flat()) || 1;
    const k = firstLargest(costs.map((c) => -c / scale));
    const list = costs.map((c, g) => `${model.groups[g]} ${decimals(c)}`).join(", ");
    return `Decision with the lowest expected cost: ${model.groups[k]}. Expected costs: ${list}.`;
  }

  /* Why there are no probabilities. */
  function problemText() {
    if (hasTooManyUnknown()) {
      return `At most ${model.unknown.most} predictors can be unknown at once. Choose more levels.`;
    }
    const open = model.unknown.never.filter(isUnknown);
    if (open.length && whatif.countUnknown(model, state.answers) < state.answers.length) {
      return `Choose a level of ${open.map((i) => model.predictors[i].name).join(", ")}.`;
    }
    return "This combination of levels cannot occur under the model.";
  }

  function showContributions(p) {
    const body = byId("contributions");
    if (!body) return;
    // groups from most to least probable; with two, the second against the first
    const ranked = K === 2 ? [1, 0] : model.groups.map((_, k) => k).sort((a, b) => p[b] - p[a] || a - b);
    const group = isNaN(state.group) ? ranked.find((k) => k !== state.against) : state.group;
    const against = isNaN(state.against) || state.against === group
      ? ranked.find((k) => k !== group) : state.against;
    const found = whatif.contributions(model, state.answers, state.priors, group, against);
    byId("explained").textContent =
      `Contributions to the log odds of ${model.groups[group]} against ${model.groups[against]}`;
    if (found === null) return body.replaceChildren();
    const [baseline, ...terms] = found.rows;
    terms.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const rows = [baseline, ...terms.slice(0, SHOWN)];
    const others = terms.slice(SHOWN);
    if (others.length) {
      rows.push([`(${others.length} others)`, others.reduce((sum, row) => sum + row[1], 0)]);
    }
    // ends of the bars, on a common scale that contains zero
    let level = 0;
    const ends = rows.map(([, value]) => [level, (level += value)]);
    const finite = [0, found.total, ...ends.flat()].filter(isFinite);
    const low = Math.min(...finite), width = Math.max(...finite) - low || 1;
    const at = (x) => (Math.min(Math.max(x, low), low + width) - low) / width;
    const line = (name, from, to, value, kind) => {
      const row = element("tr", element("th", name, { scope: "row" }), { class: kind });
      row.append(barCell(at(from), at(to), kind || (value < 0 ? "minus" : "plus")));
      row.append(element("td", isFinite(value) ? decimals(value) : value < 0 ? "\u2212\u221e" : "\u221e"));
      return row;
    };
    body.replaceChildren(
      ...rows.map(([name, value], r) => line(name, ...ends[r], value, "")),
      line("sum", 0, found.total, found.total, "sum"),
    );
  }

  /* Show the results for the state, and put it into the address. */
  function update() {
    const tooMany = hasTooManyUnknown();
    let p = null;
    if (hasClasses) {
      if (!tooMany) p = whatif.probabilities(model, state.answers, state.priors);
      showBars(model.groups, p);
      byId("status").textContent = p === null ? problemText() : decisionText(p);
      if (p !== null) showContributions(p);
      else if (byId("contributions")) byId("contributions").replaceChildren();
    } else {
      const target = model.predictors[state.target];
      if (!tooMany) p = whatif.levelProbabilities(model, state.answers, state.target);
      showBars(target.levels, p);
      byId("status").textContent = p === null ? problemText()
        : `Most probable ${target.name}: ${target.levels[firstLargest(p)]} (${percent(Math.max(...p))}).`;
    }
    const fragment = toFragment();
    byId("link").setAttribute("href", fragment);
    return fragment;
  }

  /* Put a number into its slider, its field and its box; `typed` is left alone. */
  function fillNumber(field, i, typed) {
    const [slider, number, box] = field.querySelectorAll("input");
    if (box) box.checked = isUnknown(i);
    if (!isUnknown(i)) slider.value = state.answers[i];
    slider.classList.toggle("off", isUnknown(i));
    if (number !== typed) number.value = isUnknown(i) ? "" : state.answers[i];
  }

  /* Put the state into the form; the input `typed` is left alone. */
  function fill(typed = null) {
    all("[data-predictor]").forEach((field) => {
      const i = Number(field.dataset.predictor), answer = String(state.answers[i]);
      if (isNumber(i)) return fillNumber(field, i, typed);
      field.querySelectorAll("input").forEach((input) => (input.checked = input.value === answer));
      field.querySelectorAll("select").forEach((select) => (select.value = answer));
      field.disabled = !hasClasses && i === state.target;
    });
    all("[data-prior]").forEach((input) => {
      if (input === typed) return;
      const p = state.priors[Number(input.dataset.prior)];
      input.value = input.type === "range" ? p : Number(p.toFixed(4));
    });
    all("[data-cost]").forEach((input) => {
      const [k, g] = input.dataset.cost.split(" ").map(Number);
      if (Number(input.value) !== state.costs[k][g]) input.value = state.costs[k][g];
    });
    const choices = { group: state.group, against: state.against, target: state.target };
    for (const [name, value] of Object.entries(choices)) {
      if (byId(name)) byId(name).value = isNaN(value) ? "" : value;
    }
  }

  function changed() {
    const fragment = update();
    try {
      history.replaceState(null, "", fragment);
    } catch {
      // a page inside a notebook has no address
    }
  }

  /* Set one class proportion; the others keep their ratios. */
  function setPrior(k, value) {
    const p = Math.min(Math.max(value, 0), 1);
    const others = state.priors.reduce((sum, q, g) => sum + (g === k ? 0 : q), 0);
    state.priors = state.priors.map((q, g) =>
      g === k ? p : others > 0 ? (q / others) * (1 - p) : (1 - p) / (K - 1));
  }

  /* The value of a number after a change of one of its inputs; null if it is unknown. */
  function numberOf(field, input) {
    if (input.type === "checkbox") return input.checked ? null : Number(field.querySelector("input").value);
    return input.value === "" ? null : Number(input.value);
  }

  section.addEventListener("input", (event) => {
    const input = event.target;
    const field = input.closest("[data-predictor]");
    const value = input.value === "" ? NaN : Number(input.value);
    if (input.id === "whatif-search") {
      const text = input.value.toLowerCase();
      all("[data-predictor]").forEach((own) => {
        const name = model.predictors[Number(own.dataset.predictor)].name;
        own.hidden = !name.toLowerCase().includes(text);
      });
      return;
    }
    if (field) {
      const i = Number(field.dataset.predictor);
      const answer = isNumber(i) ? numberOf(field, input) : value;
      if (!isAllowed(i, answer)) return;
      state.answers[i] = answer;
    } else if (input.dataset.prior !== undefined) {
      if (isNaN(value)) return;
      setPrior(Number(input.dataset.prior), value);
    } else if (input.dataset.cost !== undefined) {
      if (!(value >= 0)) return;
      const [k, g] = input.dataset.cost.split(" ").map(Number);
      state.costs[k][g] = value;
    } else if (input.id === "whatif-start") {
      state.answers = model.starts[value].answers.slice();
    } else if (["whatif-group", "whatif-against", "whatif-target"].includes(input.id)) {
      state[input.id.replace("whatif-", "")] = value;
    }
    fill(input.type === "number" ? input : null); // what is being typed is left alone
    changed();
  });
  section.addEventListener("change", (event) => {
    if (event.target.type === "number") fill();
  });
  section.addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => {
    reset();
    byId("start").value = "0";
    fill();
    changed();
  });
  window.addEventListener("hashchange", () => {
    if (fromFragment()) {
      fill();
      update();
    }
  });

  if (!fromFragment()) reset();
  fill();
  update();
  section.hidden = false;
})();
