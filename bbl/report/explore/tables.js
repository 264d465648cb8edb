/* Tables of a page: sorted by a click on a column's name, and searched if they are long. */
"use strict";
(function () {
  const MIN_SORTED = 4, MIN_SEARCHED = 15; // rows

  /* The number in a cell, or NaN; "<2e-16" and a typographical minus are read as well. */
  function number(text) {
    const plain = text.trim().replace("\u2212", "-").replace(/^[<>=]+\s*/, "").replace(/,/g, "");
    return plain.endsWith("%") ? parseFloat(plain) / 100 : plain === "" ? NaN : Number(plain);
  }

  /* Order of two cells: numbers, then texts, then empty cells. */
  function compare(a, b) {
    const [x, y] = [number(a), number(b)];
    if (!isNaN(x) || !isNaN(y)) return isNaN(x) ? 1 : isNaN(y) ? -1 : x - y;
    return a.localeCompare(b);
  }

  document.querySelectorAll("main .scroll > table:has(thead):not(.heat):not(.couplings)").forEach((table) => {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    if (rows.length < MIN_SORTED) return;
    const headers = Array.from(table.tHead.rows[0].cells);
    headers.forEach((header, column) => {
      if (header.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        // ascending, descending, and as it was
        const next = { none: "ascending", ascending: "descending", descending: "none" };
        const order = next[header.getAttribute("aria-sort") || "none"];
        headers.forEach((other) => other.removeAttribute("aria-sort"));
        if (order !== "none") header.setAttribute("aria-sort", order);
        const sign = order === "descending" ? -1 : 1;
        const text = (row) => row.cells[column].textContent;
        const sorted = order === "none" ? rows
          : rows.slice().sort((a, b) => sign * compare(text(a), text(b)));
        body.append(...sorted);
      });
    });
    if (rows.length < MIN_SEARCHED) return;
    const label = document.createElement("label");
    label.className = "find";
    const input = document.createElement("input");
    input.type = "search";
    label.append("Find rows ", input);
    table.before(label);
    input.addEventListener("input", () => {
      const text = input.value.toLowerCase();
      rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(text)));
    });
  });
})();
