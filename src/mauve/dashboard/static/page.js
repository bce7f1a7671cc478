// The few things that a page does by itself: copy, wait for news, change its appearance.

const COPIED_MS = 1600;

function textOf(button) {
  return document.getElementById(button.dataset.copy).textContent;
}

async function copy(button) {
  const text = textOf(button);
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    // Browsers hide the clipboard from pages on plain HTTP, except on this machine.
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  button.disabled = true;
  setTimeout(() => {
    button.textContent = label;
    button.disabled = false;
  }, COPIED_MS);
}

// An element with data-poll is filled again and again with what that address returns, as long as a part of it says
// data-waiting. A hidden page asks for nothing.
async function poll(place) {
  if (!document.hidden) {
    try {
      const reply = await fetch(place.dataset.poll, { headers: { accept: "text/html" } });
      if (reply.redirected) return location.reload();
      if (reply.ok) {
        const text = await reply.text();
        if (text !== place.dataset.shown) place.innerHTML = text;
        place.dataset.shown = text;
      }
    } catch {
      // The service may be restarting: the next round may succeed.
    }
  }
  if (place.querySelector("[data-waiting]")) {
    setTimeout(() => poll(place), Number(place.dataset.pollSeconds) * 1000);
  }
}

function chosenTheme() {
  return document.documentElement.dataset.theme ?? "system";
}

function chooseTheme(theme) {
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});

for (const place of document.querySelectorAll("[data-poll]")) poll(place);

for (const choice of document.querySelectorAll("[data-theme-choice]")) {
  choice.checked = choice.value === chosenTheme();
  choice.addEventListener("change", () => chooseTheme(choice.value));
}

// A page that shows a secret once is the answer to a form: loading it again must not send the form again.
if (document.querySelector("[data-shown-once]")) history.replaceState(null, "", location.href);

document.querySelector("[data-take-focus]")?.focus();
