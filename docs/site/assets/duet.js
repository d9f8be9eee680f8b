// What scrolls sideways can be scrolled from the keyboard: it takes the focus while it is too wide.
document$.subscribe(() => {
  const wide = new ResizeObserver(entries => {
    for (const { target } of entries)
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
  });
  document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap, div.duet-formula")
    .forEach(element => wide.observe(element));
});
