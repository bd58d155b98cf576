// Runs before the first paint, so that the page does not flash in the other theme.
"use strict";
try {
  const theme = localStorage.getItem("roost-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme applies.
}
