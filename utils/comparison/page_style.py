"""The style of compare.html: light and dark, wide and narrow, nothing loaded from elsewhere."""

# Colours by trainer, then by stage; the second set is for dark screens.
STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --soft: #5b6570; --line: #dde2e7; --panel: #f5f7f9;
  --bad: #b3161b; --bad-panel: #fdeceb;
  --side0: #d9622b; --side1: #2f6fd0; --side2: #2f8f5b; --side3: #8a56b5; --side4: #a07a12;
  --stage0: #9aa5b1; --stage1: #c9a227; --stage2: #2f6fd0; --stage3: #7a4fb8; --stage4: #d9622b;
  --stage5: #2f8f5b; --stage6: #58b5b0; --stage7: #c0528a; --stage8: #d5dae0; --stage9: #6b4f3a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e7eaee; --soft: #a2acb7; --line: #333a42; --panel: #1d2127;
    --bad: #ff8a84; --bad-panel: #3a1b1d;
    --side0: #f0864f; --side1: #6ea1f2; --side2: #5cc08a; --side3: #b98ae0; --side4: #d5ad45;
    --stage0: #7c8894; --stage1: #dcb945; --stage2: #6ea1f2; --stage3: #a98be0; --stage4: #f0864f;
    --stage5: #5cc08a; --stage6: #74cbc6; --stage7: #e07fb0; --stage8: #4a525b; --stage9: #b38f73;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, "Open Sans", sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .5rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.3rem 0 .5rem; }
p { margin: .4rem 0 .8rem; }
.soft { color: var(--soft); font-size: .92rem; }
.warning { background: var(--bad-panel); color: var(--bad); border-left: 4px solid var(--bad);
  padding: .6rem .9rem; margin: .7rem 0; font-weight: 600; overflow-wrap: anywhere; }
.bad { color: var(--bad); font-weight: 600; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .7rem;
  padding: 0; margin: 0; list-style: none; }
.pairs li { background: var(--panel); border-radius: .5rem; padding: .8rem .9rem; }
.pairs .ratio { font-size: 1.5rem; font-weight: 700; line-height: 1.2; display: block;
  font-variant-numeric: tabular-nums; }
.pairs .verdict { font-weight: 600; }
.bars { display: grid; grid-template-columns: 11rem minmax(6rem, 1fr) 6rem;
  gap: .35rem .8rem; align-items: center; margin: 0; }
.bars .label { overflow-wrap: anywhere; }
.bars .value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; overflow: visible; }
.bars svg { height: 1.25rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .4rem 0 .8rem;
  font-size: .9rem; }
.legend span::before { content: ""; display: inline-block; width: .8rem; height: .8rem;
  border-radius: .15rem; margin-right: .4rem; background: var(--swatch); vertical-align: -.05rem; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.2rem;
  margin-top: .6rem; }
figure { margin: 0; }
figcaption { font-weight: 600; font-size: .95rem; }
.plot { display: grid; grid-template-columns: max-content 1fr; gap: .2rem .4rem;
  font-size: .8rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.plot svg { height: 10rem; border-left: 1px solid var(--line);
  border-bottom: 1px solid var(--line); }
.plot .y, .plot .x { display: flex; justify-content: space-between; }
.plot .y { flex-direction: column; text-align: right; }
.plot .x { grid-column: 2; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
pre { background: var(--panel); padding: .7rem .9rem; border-radius: .5rem; font-size: .82rem;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  .bars { grid-template-columns: 1fr max-content; gap: 0 .6rem; grid-auto-flow: row dense; }
  .bars .label { grid-column: 1; } .bars .label { overflow-wrap: anywhere; }
.bars .value { grid-column: 2; }
  .bars .bar { grid-column: 1 / -1; margin-bottom: .6rem; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { background: var(--panel); border-radius: .5rem; padding: .5rem .8rem; margin: .6rem 0; }
  td, td:nth-child(-n+2) { border: 0; padding: .1rem 0; display: flex;
    justify-content: space-between; gap: 1rem; text-align: right; }
  td::before { content: attr(data-label); color: var(--soft); text-align: left; }
  td:empty { display: none; }
  td:nth-child(-n+3) { display: inline; font-weight: 700; margin-right: .4rem; }
  td:nth-child(-n+3)::before { content: ""; } td:nth-child(3)::before { content: "batch "; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
}
"""
