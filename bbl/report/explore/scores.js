/* What if: the class probabilities of a model, as answers change. Plain JavaScript without network
access. The model is JSON in the page (see bbl/report/explore/score_model.py): class scores are sums of
tables and of normal densities of numbers, or weighted averages of such sums. Answers are in the order
of the predictors: the number of a level, where UNKNOWN (-1) stands for no answer, or the value of a
numeric predictor, where null does. */
"use strict";
var whatif = (function () {
  const UNKNOWN = -1;

  // ---- numbers

  /* Decode base64 of little-endian float64. */
  function decodeNumbers(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Float64Array(bytes.buffer);
  }

  /* ln(sum of exponentials); -Infinity for impossible states. */
  function logSumExp(values) {
    let largest = -Infinity, sum = 0;
    for (const value of values) if (value > largest) largest = value;
    if (largest === -Infinity) return -Infinity;
    for (const value of values) sum += Math.exp(value - largest);
    return largest + Math.log(sum);
  }

  function isNumber(model, i) {
    return model.predictors[i].kind === "number";
  }

  function isUnknown(model, answers, i) {
    return isNumber(model, i) ? !Number.isFinite(answers[i]) : answers[i] === UNKNOWN;
  }

  /* How many predictors are unknown, of all or of those with levels. */
  function countUnknown(model, answers, onlyLevels = false) {
    return answers.filter((_, i) => isUnknown(model, answers, i) && !(onlyLevels && isNumber(model, i))).length;
  }

  function answerText(model, answers, i) {
    return isNumber(model, i) ? String(answers[i]) : model.predictors[i].levels[answers[i]];
  }

  function logSoftmax(scores) {
    const total = logSumExp(scores);
    return scores.map((score) => score - (total === -Infinity ? 0 : total));
  }

  // ---- sums over unknown predictors

  /* Fix the known predictors of a term for group k: a table over its unknown predictors, to be
  multiplied by `factor`, the product of the regressors' differences from their origins. */
  function restrict(model, term, answers, k) {
    const sizes = term.scope.map((i) => (isNumber(model, i) ? 1 : model.predictors[i].levels.length));
    const cells = sizes.reduce((product, size) => product * size, 1);
    let offset = term.start + (term.shared ? 0 : k * cells);
    let stride = cells;
    let factor = 1;
    const scope = [], strides = [];
    term.scope.forEach((i, axis) => {
      stride /= sizes[axis];
      if (isNumber(model, i)) {
        factor *= answers[i] - term.origins[i];
      } else if (answers[i] === UNKNOWN) {
        scope.push(i);
        strides.push(stride);
      } else {
        offset += answers[i] * stride;
      }
    });
    return { scope, strides, offset, factor, values: model.values };
  }

  /* ln(sum over the predictors in `order` of the exponentials of all tables), one predictor after
  the other: its tables are replaced by one table over the predictors that they share with it. */
  function logSumOut(model, tables, order) {
    let total = 0;
    for (const out of order) {
      const used = tables.filter((table) => table.scope.includes(out));
      if (!used.length) continue;
      tables = tables.filter((table) => !table.scope.includes(out));
      const scope = [...new Set(used.flatMap((table) => table.scope))].filter((i) => i !== out);
      const sizes = scope.map((i) => model.predictors[i].levels.length);
      const cells = sizes.reduce((product, size) => product * size, 1);
      const nLevels = model.predictors[out].levels.length;
      const summed = new Float64Array(cells);
      const stride = (table, i) => (table.scope.includes(i) ? table.strides[table.scope.indexOf(i)] : 0);
      const along = used.map((table) => scope.map((i) => stride(table, i)));
      const step = used.map((table) => stride(table, out));
      const column = new Float64Array(nLevels);
      for (let cell = 0; cell < cells; cell++) {
        column.fill(0);
        for (let t = 0; t < used.length; t++) {
          let start = used[t].offset;
          for (let axis = scope.length - 1, rest = cell; axis >= 0; axis--) {
            const level = rest % sizes[axis];
            rest = (rest - level) / sizes[axis];
            start += level * along[t][axis];
          }
          for (let level = 0; level < nLevels; level++) {
            column[level] += used[t].values[start + level * step[t]];
          }
        }
        summed[cell] = logSumExp(column);
      }
      if (!scope.length) {
        total += summed[0];
        continue;
      }
      const strides = sizes.map((_, axis) => sizes.slice(axis + 1).reduce((a, b) => a * b, 1));
      tables.push({ scope, strides, offset: 0, values: summed });
    }
    return total;
  }

  // ---- class scores

  /* The K class scores, or null if an unknown predictor is needed or the row is impossible. */
  function scores(model, node, answers) {
    const unknown = countUnknown(model, answers);
    if (unknown === answers.length && node.empty !== null) return array(model, node.empty);
    if (node.needed.some((i) => isUnknown(model, answers, i))) return null;
    let found = node.members
      ? scoresOfMixture(model, node, answers)
      : scoresOfSum(model, node, answers);
    if (found === null) return null;
    if (node.isCumulative) found = scoresOfLogits(model, found);
    if (found.every((score) => score === -Infinity)) {
      return node.equalIfImpossible ? found.map(() => 0) : null;
    }
    const offset = node.offset === null ? found.map(() => 0) : array(model, node.offset);
    return found.map((score, k) => node.temperature * score + offset[k]);
  }

  /* K numbers of the model that begin at a position. */
  function array(model, start) {
    return Array.from(model.values.subarray(start, start + model.groups.length));
  }

  /* Scores of a sum of tables; with numbers, summed over the unknown predictors on which means of
  known numbers depend. */
  function scoresOfSum(model, node, answers) {
    if (node.numbers === null) return scoresOfTables(model, node, answers);
    const known = knownNumbers(model, node.numbers, answers);
    const states = completions(model, answers, unknownPartners(model, node.numbers, answers, known));
    const parts = states.map((state) => scoresOfTables(model, node, state).map((score, k) =>
      score + logDensity(model, node.numbers, state, k, known)));
    return model.groups.map((_, k) => logSumExp(parts.map((part) => part[k])));
  }

  function scoresOfTables(model, node, answers) {
    const order = node.order.filter((i) => answers[i] === UNKNOWN);
    return array(model, node.constant).map((constant, k) => {
      let score = constant;
      const open = [];
      for (const term of node.terms) {
        const table = restrict(model, term, answers, k);
        if (!table.scope.length) score += table.factor * table.values[table.offset];
        else if (node.sumsUnknown) open.push(table);
      }
      return score + logSumOut(model, open, order);
    });
  }

  // ---- normal densities of numbers

  /* Positions in `numbers.numbers` of the known ones. */
  function knownNumbers(model, numbers, answers) {
    return numbers.numbers.map((_, j) => j).filter((j) => !isUnknown(model, answers, numbers.numbers[j]));
  }

  /* Unknown predictors on which the means of the numbers in `known` depend. */
  function unknownPartners(model, numbers, answers, known) {
    return numbers.partners.filter((i) =>
      answers[i] === UNKNOWN && known.some((j) => numbers.needs[j].includes(i)));
  }

  /* All answers that replace the unknown ones in `open` by levels. */
  function completions(model, answers, open) {
    let states = [answers];
    for (const i of open) {
      states = states.flatMap((state) => model.predictors[i].levels.map((_, level) => {
        const complete = state.slice();
        complete[i] = level;
        return complete;
      }));
    }
    return states;
  }

  /* Mean of number j given the levels, in group k. */
  function meanOf(model, numbers, answers, k, j) {
    const q = numbers.numbers.length;
    const at = (column) => model.values[numbers.means + (k * numbers.columns + column) * q + j];
    let mean = at(0), first = 1;
    for (const i of numbers.partners) {
      if (answers[i] > 0) mean += at(first + answers[i] - 1);
      first += model.predictors[i].levels.length - 1;
    }
    return mean;
  }

  /* ln of the normal density of the numbers in `known`; the others are averaged over by leaving out
  their rows and columns of the covariance. */
  function logDensity(model, numbers, answers, k, known) {
    const q = numbers.numbers.length;
    const S = (a, b) => model.values[numbers.covariances + (k * q + a) * q + b];
    // rows of the Cholesky factor, and the standardised residuals
    const factor = [], standardised = [];
    let total = 0;
    known.forEach((j, row) => {
      const value = answers[numbers.numbers[j]] - model.values[numbers.centers + j];
      let residual = value - meanOf(model, numbers, answers, k, j);
      const own = [];
      for (let column = 0; column <= row; column++) {
        let entry = S(j, known[column]);
        for (let c = 0; c < column; c++) entry -= own[c] * (column < row ? factor[column][c] : own[c]);
        own.push(column < row ? entry / factor[column][column] : Math.sqrt(entry));
      }
      for (let c = 0; c < row; c++) residual -= own[c] * standardised[c];
      factor.push(own);
      standardised.push(residual / own[row]);
      total -= 0.5 * standardised[row] ** 2 + Math.log(own[row]) + 0.5 * Math.log(2 * Math.PI);
    });
    return total;
  }

  /* Contributions of the numbers: [name, values of the groups] of each set of correlated ones. */
  function numberTerms(model, numbers, answers) {
    const found = [];
    for (const component of numbers.components) {
      const known = component.filter((j) => !isUnknown(model, answers, numbers.numbers[j]));
      if (!known.length || unknownPartners(model, numbers, answers, known).length) continue;
      const name = known
        .map((j) => numbers.numbers[j])
        .map((i) => `${model.predictors[i].name}=${answerText(model, answers, i)}`)
        .join(", ");
      found.push([name, model.groups.map((_, k) => logDensity(model, numbers, answers, k, known))]);
    }
    return found;
  }

  // ---- scores of other kinds

  /* ln P(group) from cumulative logits ln P(group or higher) / P(lower); groups without training
  rows have none. The logit of the first group is not used. */
  function scoresOfLogits(model, logits) {
    const logLogistic = (x) => (x < 0 ? x : 0) - Math.log1p(Math.exp(-Math.abs(x)));
    const present = model.groups.map((_, k) => k).filter((k) => model.shares[k] > 0);
    const found = model.groups.map(() => -Infinity);
    present.forEach((k, position) => {
      const lower = position > 0 ? logits[k] : Infinity;
      const upper = position + 1 < present.length ? logits[present[position + 1]] : -Infinity;
      found[k] = (lower < Infinity ? logLogistic(lower) : 0) + (upper > -Infinity ? logLogistic(-upper) : 0);
      if (lower < Infinity && upper > -Infinity) found[k] += Math.log(-Math.expm1(upper - lower));
    });
    return found;
  }

  function scoresOfMixture(model, node, answers) {
    const parts = [], logWeights = [];
    node.members.forEach((member, m) => {
      const found = scores(model, member, answers);
      if (found === null) return; // its weight is distributed over the others
      parts.push(node.averagesPosteriors ? logSoftmax(found) : found);
      logWeights.push(Math.log(model.values[node.weights + m]));
    });
    if (!parts.length) return null;
    const total = logSumExp(logWeights);
    return model.groups.map((_, k) =>
      logSumExp(parts.map((part, m) => part[k] + logWeights[m] - total)));
  }

  /* The change of the scores if the class proportions are `priors` instead of the training ones. */
  function priorShift(model, priors) {
    return priors.map((prior, k) =>
      model.shares[k] > 0 ? Math.log(prior) - Math.log(model.shares[k]) : -Infinity);
  }

  function shiftedScores(model, answers, priors) {
    const found = scores(model, model.scores, answers);
    if (found === null || model.response === null) return found;
    const shift = priorShift(model, priors);
    return found.map((score, k) => score + shift[k]);
  }

  /* P(group | answers), or null. */
  function probabilities(model, answers, priors) {
    const found = shiftedScores(model, answers, priors);
    if (found === null || found.every((score) => score === -Infinity)) return null;
    return logSoftmax(found).map(Math.exp);
  }

  /* P(level of a predictor | the other answers), for a model without a response, or null. */
  function levelProbabilities(model, answers, target) {
    const found = model.predictors[target].levels.map((_, level) => {
      const complete = answers.slice();
      complete[target] = level;
      const score = scores(model, model.scores, complete);
      return score === null ? -Infinity : score[0];
    });
    return found.every((score) => score === -Infinity) ? null : logSoftmax(found).map(Math.exp);
  }

  /* Expected cost of predicting each group; costs[true][predicted]. */
  function expectedCosts(p, costs) {
    return p.map((_, predicted) => p.reduce((sum, q, k) => sum + q * costs[k][predicted], 0));
  }

  /* Contributions to the log odds of two groups: [name, contribution] of the baseline, the terms,
  and the rest, which comes from unknown predictors or from averaging over draws. */
  function contributions(model, answers, priors, group, against) {
    const node = model.explained === "scores" ? model.scores : model.explained;
    const found = shiftedScores(model, answers, priors);
    if (node === null || found === null) return null;
    const difference = (values) => (values[group] === values[against] ? 0 : values[group] - values[against]);
    const constant = array(model, node.constant);
    const shift = priorShift(model, priors);
    const offset = node.offset === null ? shift.map(() => 0) : array(model, node.offset);
    const rows = [["(baseline)", node.temperature * difference(constant) + difference(offset) + difference(shift)]];
    for (const term of node.terms) {
      if (!term.name || term.scope.some((i) => isUnknown(model, answers, i))) continue;
      const values = model.groups.map((_, k) => {
        const table = restrict(model, term, answers, k);
        return table.factor * table.values[table.offset];
      });
      const name = term.shown
        .map((i) => `${model.predictors[i].name}=${answerText(model, answers, i)}`)
        .join(", ");
      rows.push([name, node.temperature * difference(values)]);
    }
    if (node.numbers !== null) {
      for (const [name, values] of numberTerms(model, node.numbers, answers)) {
        rows.push([name, node.temperature * difference(values)]);
      }
    }
    const rest = difference(found) - rows.reduce((sum, row) => sum + row[1], 0);
    if (countUnknown(model, answers)) rows.push(["(unknown predictors)", rest]);
    else if (model.explained !== "scores") rows.push(["(average over draws)", rest]);
    return { rows, total: difference(found) };
  }

  /* Parse the model's JSON. */
  function load(text) {
    const model = JSON.parse(text);
    model.values = decodeNumbers(model.numbers);
    return model;
  }

  return { UNKNOWN, isNumber, isUnknown, countUnknown, load, scores, probabilities, levelProbabilities, expectedCosts, contributions };
})();
