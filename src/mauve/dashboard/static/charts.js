// Show the value under the pointer, or move through the values with the arrow keys.
// The values come from the table below each chart, so nothing needs to be loaded.

function rowsOf(plot) {
  const rows = plot.closest(".chart").querySelectorAll("tbody tr");
  return Array.from(rows, (row) => Array.from(row.cells, (cell) => cell.textContent.trim()));
}

function element(name, text) {
  const created = document.createElement(name);
  created.textContent = text;
  return created;
}

function addCursor(plot) {
  const rows = rowsOf(plot);
  const canvas = plot.querySelector(".canvas");
  const cursor = plot.querySelector("[data-cursor]");
  const tip = plot.querySelector("[data-tip]");
  let shown = -1;

  function show(index) {
    shown = Math.max(0, Math.min(rows.length - 1, index));
    const [day, value, before] = rows[shown];
    tip.replaceChildren(element("span", day), element("b", value), element("span", `previous: ${before}`));
    cursor.hidden = tip.hidden = false;
    const x = rows.length > 1 ? (shown / (rows.length - 1)) * canvas.clientWidth : 0;
    cursor.style.left = `${x}px`;
    // Place the tooltip on the side of the cursor that has room.
    const left = x + 12 + tip.offsetWidth > canvas.clientWidth ? x - 12 - tip.offsetWidth : x + 12;
    tip.style.left = `${Math.max(0, left)}px`;
  }

  function hide() {
    shown = -1;
    cursor.hidden = tip.hidden = true;
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    show(Math.round(((event.clientX - box.left) / box.width) * (rows.length - 1)));
  });
  canvas.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (step === undefined) return;
    event.preventDefault();
    show(shown < 0 ? rows.length - 1 : shown + step);
  });
}

for (const plot of document.querySelectorAll("[data-chart]")) addCursor(plot);
