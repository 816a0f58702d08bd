"use strict";
// What is folded opens where a link leads to, and for print.
(function () {
  const folds = () => document.querySelectorAll("details:not([open])");

  function openAt(hash) {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    const fold = target && target.closest("details");
    if (!fold) return;
    fold.open = true;
    target.scrollIntoView();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) setTimeout(() => openAt(link.getAttribute("href")));
  });
  window.addEventListener("hashchange", () => openAt(location.hash));
  openAt(location.hash);

  // Also where a page has no clipboard: from a server that is not this machine.
  document.querySelectorAll(".command > code").forEach((code) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy screen-only", textContent: "Copy" });
    button.addEventListener("click", () => {
      getSelection().selectAllChildren(code);
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    });
    code.before(button);
  });

  const opened = [];
  window.addEventListener("beforeprint", () => {
    folds().forEach((item) => {
      item.open = true;
      opened.push(item);
    });
  });
  window.addEventListener("afterprint", () => {
    opened.splice(0).forEach((item) => { item.open = false; });
  });
}());
