// One stop of the tab key for a group of controls; arrow keys, Home and End move inside of it.

const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

// rove makes the controls that match selector inside of a container such a group. It returns a
// function to call after the controls have changed.
export function rove(container, selector) {
  const all = () => [...container.querySelectorAll(selector)].filter((e) => !e.disabled && e.checkVisibility());
  const choose = (chosen, controls) => { for (const e of controls) e.tabIndex = e === chosen ? 0 : -1; };
  container.addEventListener("keydown", (e) => {
    const controls = all(), at = controls.indexOf(e.target);
    if (at < 0 || e.ctrlKey || e.altKey || e.metaKey) return;
    const to = e.key === "Home" ? 0 : e.key === "End" ? controls.length - 1 : at + (steps[e.key] ?? 0);
    if (!(e.key in steps) && e.key !== "Home" && e.key !== "End") return;
    e.preventDefault();
    controls[(to + controls.length) % controls.length].focus();
  });
  container.addEventListener("focusin", (e) => {
    const controls = all();
    if (controls.includes(e.target)) choose(e.target, controls);
  });
  return () => {
    const controls = all();
    choose(controls.find((e) => e === document.activeElement) ?? controls.find((e) => e.tabIndex === 0) ?? controls[0], controls);
  };
}
