// Runs before the first paint, so that the page does not flash in the wrong theme.
{
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage may be disabled: use the system theme.
  }
}
