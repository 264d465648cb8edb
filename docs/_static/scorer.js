/* Scores of search results: pages of the guide come first, members of classes last. */
var Scorer = {
  score: ([page, , , description, score]) =>
    score + (page.startsWith("guide/") ? 8 : 0) - (/^Python (attribute|property|method)/.test(description ?? "") ? 20 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
