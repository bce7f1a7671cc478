// Runs before anything is painted, so that the chosen appearance does not flash.
{
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage may be switched off: the system's appearance is used.
  }
}
