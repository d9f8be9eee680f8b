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

// A search for a flag as it is written, `--freeze`, finds its row: hyphens would exclude the word.
// hooks.py makes the tags of flags, and of Chinese words, which the theme cuts into pieces.
const flagQuery = (_, space, name) => {
  const parts = name.split("-").filter(Boolean);
  return `${space}${parts.map(part => `+${part}*`).join(" ")} +tags:flag tags:flag${parts.join("")}^2`;
};
const queryOf = text => {
  const letters = code => code.replace(/\d/g, digit => "ghijklmnop"[digit]);
  const codes = [...text.trim().toLowerCase()].map(one => letters(one.codePointAt(0).toString(16)));
  const word = /\p{sc=Han}/u.test(text) ? ` tags:word${codes.join("")}^2` : "";
  return text.replace(/(^|\s)--?([a-z][\w-]*)/gi, flagQuery) + word;
};
const QUERY = 2;  // the theme's number of this message
for (const kind of new Set([window.Worker, window.IFrameWorker])) {
  const post = kind && kind.prototype.postMessage;
  if (post)
    kind.prototype.postMessage = function (message, ...rest) {
      const query = message && message.type === QUERY && typeof message.data === "string";
      return post.call(this, query ? { ...message, data: queryOf(message.data) } : message, ...rest);
    };
}
