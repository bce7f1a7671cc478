// Copy buttons, polled fragments, and the choice of the theme.

const COPIED_MS = 1600;
const ANSWER_MS = 15_000;

function textOf(button) {
  return document.getElementById(button.dataset.copy).textContent;
}

async function copy(button) {
  const text = textOf(button);
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    // Browsers hide the clipboard API from pages on plain HTTP, except on localhost.
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

// Replace the content of an element with the response of its data-poll address, and repeat while it contains an element
// with data-waiting. Hidden pages do not poll. While the service does not answer, show the content's age. Stop if it
// refuses: the app may be gone, or the role may have changed.
async function poll(target, status, shownAt) {
  if (!document.hidden) {
    try {
      const response = await fetch(target.dataset.poll, {
        headers: { accept: "text/html" },
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      if (response.redirected) return location.reload();
      if (isFinal(response.status)) {
        return say(status, `Updates have stopped: showing the state of ${timeOf(shownAt)}; reload the page.`);
      }
      if (!response.ok) throw new Error(response.statusText);
      const text = await response.text();
      if (text !== target.dataset.shown) target.innerHTML = text;
      target.dataset.shown = text;
      shownAt = new Date();
      say(status, "");
    } catch {
      say(status, `Not connected: showing the state of ${timeOf(shownAt)}; trying again…`);
    }
  }
  if (target.querySelector("[data-waiting]")) {
    setTimeout(() => poll(target, status, shownAt), Number(target.dataset.pollSeconds) * 1000);
  }
}

// Retry only if the service is busy (429, 5xx).
function isFinal(status) {
  return status >= 400 && status < 500 && status !== 429;
}

function timeOf(moment) {
  return `${moment.toISOString().slice(11, 16)} UTC`;
}

// A live region, which must exist before it changes: otherwise screen readers miss the first message.
function statusBefore(target) {
  const status = document.createElement("p");
  status.className = "poll-status muted small";
  status.setAttribute("role", "status");
  target.before(status);
  return status;
}

function say(status, text) {
  if (status.textContent !== text) status.textContent = text;
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

for (const target of document.querySelectorAll("[data-poll]")) poll(target, statusBefore(target), new Date());

for (const choice of document.querySelectorAll("[data-theme-choice]")) {
  choice.checked = choice.value === chosenTheme();
  choice.addEventListener("change", () => chooseTheme(choice.value));
}

// A page that shows a secret is the response to a form: reloading it must not submit the form again.
if (document.querySelector("[data-shown-once]")) history.replaceState(null, "", location.href);

document.querySelector("[data-take-focus]")?.focus();
