// Buttons that copy the text beside them, for browsers with scripts; without them it can be marked and copied by hand.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const text = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      // The browser does not let us: it is marked, so that one key press copies it.
      getSelection().selectAllChildren(text);
      button.textContent = "Marked: copy it";
    }
  });
}
