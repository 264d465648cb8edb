/* Figures of a page: a click or Enter shows one at twice its size, Escape or a click closes it. */
"use strict";
(function () {
  const dialog = document.createElement("dialog");
  dialog.className = "enlarged";
  dialog.setAttribute("aria-label", "Enlarged figure");
  dialog.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  document.querySelectorAll("main figure img").forEach((image) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    button.title = "Enlarge the figure";
    image.replaceWith(button);
    button.append(image);
    button.addEventListener("click", () => {
      const large = image.cloneNode();
      large.width = 2 * image.width; // pictures are stored with twice as many pixels
      large.removeAttribute("height");
      dialog.replaceChildren(large);
      dialog.showModal();
    });
  });
})();
