/** The style sheet of the page, for wide and narrow windows, light and dark. */
export const style = `
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --quiet: #59636e; --line: #d1d9e0; --now: #6a96d5; --was: #6e2800;
  --good: #1a7f37; --warned: #9a6700; --bad: #cf222e; --shade: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --quiet: #9198a1; --line: #3d444d; --now: #3263b4; --was: #ffc08a;
    --good: #3fb950; --warned: #d29922; --bad: #ff7b72; --shade: #161b22; }
}
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; } h3 { font-size: .95rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0; overflow-wrap: anywhere; } pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--shade); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .7rem; margin: .3rem 0 .8rem; font-size: .85rem; }
header { border-left: .4rem solid var(--quiet); padding: .2rem 0 .2rem .9rem; } header p { color: var(--quiet); font-size: .9rem; } header .reason { color: var(--ink); font-size: 1rem; } header span { overflow-wrap: anywhere; }
header.good { border-color: var(--good); } header.warned { border-color: var(--warned); } header.bad { border-color: var(--bad); }
header.good h1 { color: var(--good); } header.warned h1 { color: var(--warned); } header.bad h1 { color: var(--bad); }
ul { margin: 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; margin: .2rem 0; } ul.failed li::marker { color: var(--bad); } ul.warned li::marker { color: var(--warned); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: .75rem; align-items: start; }
figure { margin: 0; min-width: 0; } .cards figure { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .7rem; }
.cards .warn { border-color: var(--warned); } .cards .hold { border-color: var(--bad); border-width: 2px; }
figcaption, small, .before { color: var(--quiet); font-size: .8rem; } svg { display: block; width: 100%; overflow: visible; }
svg text { font-size: 10.5px; fill: var(--quiet); } path.now { fill: var(--now); } path.was { fill: none; stroke: var(--was); stroke-width: 1.6; vector-effect: non-scaling-stroke; }
path.grid { stroke: var(--line); fill: none; } path.line { fill: none; stroke: var(--quiet); stroke-width: 1.5; vector-effect: non-scaling-stroke; } svg.wide { height: 5rem; }
circle { fill: var(--ink); } .mark.warn { fill: var(--warned); } .mark.hold { fill: var(--bad); } b.warn { color: var(--warned); } b.hold { color: var(--bad); }
.key { font-size: .85rem; } .key .now { border-left: 1rem solid var(--now); padding: 0 1rem 0 .4rem; } .key .was { border-left: 1rem solid transparent; border-image: linear-gradient(transparent 45%, var(--was) 45% 58%, transparent 58%) 1; padding-left: .4rem; }
table { border-collapse: collapse; } th { text-align: left; font-weight: normal; overflow-wrap: anywhere; } td { font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } .drift { width: 100%; max-width: 52rem; font-size: .9rem; } .drift th, .drift td { padding: .25rem .5rem; border-top: 1px solid var(--line); vertical-align: top; }
.drift td { text-align: right; } .drift thead th, .drift thead td { border: 0; color: var(--quiet); font-size: .8rem; vertical-align: bottom; } .drift td:nth-child(2) .before { white-space: nowrap; }
.drift th { min-width: 9rem; } .drift td { min-width: 4rem; } .drift td:nth-child(3) { min-width: 7rem; overflow-wrap: anywhere; }
.drift .warn th { color: var(--warned); } .drift .hold th { color: var(--bad); font-weight: 600; }
.compared { margin-top: 1rem; } .compared details { margin-top: .4rem; } .rows { font-size: .9rem; } .rows th, .rows td { padding: .2rem .8rem .2rem 0; border-top: 1px solid var(--line); } .rows th { white-space: nowrap; } .rows thead th, .rows thead td { border: 0; color: var(--quiet); font-size: .8rem; }
.history { display: grid; grid-template-columns: minmax(6rem, 12rem) repeat(3, minmax(0, 1fr)); gap: .3rem 1.5rem; border-top: 1px solid var(--line); padding: .5rem 0; } .history svg { max-width: 14rem; } .history h3 small { font-weight: normal; }
details { margin-top: 1.2rem; } summary { cursor: pointer; font-weight: 600; } details h3 { margin-top: 1.2rem; } details .cards { margin-top: .6rem; } details .cards h3, details .history h3 { margin: 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .4rem; } .tiles div { border: 1px solid var(--line); border-radius: 6px; padding: .3rem .7rem; } dt { font-size: .8rem; color: var(--quiet); } dd { margin: 0; font-size: 1.05rem; }
dl.values { display: grid; grid-template-columns: 1fr auto minmax(3rem, auto); gap: 0 .7rem; margin: .3rem 0; font-size: .85rem; line-height: 1.3; } .values dt { color: inherit; font-size: inherit; overflow-wrap: anywhere; }
.values dd { font-size: inherit; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } .values { max-width: 30rem; } .values .bar { grid-column: 1 / -1; } .values .bar svg { height: .7rem; margin-bottom: .4rem; }
.facts { table-layout: fixed; width: 100%; } .facts td { overflow-wrap: anywhere; } .facts th { padding-right: 1rem; vertical-align: top; width: 10rem; }
@media (max-width: 34rem) {
  .history { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .3rem .6rem; } .history h3 { grid-column: 1 / -1; }
  .drift { font-size: .8rem; } .drift th, .drift td { padding: .25rem .3rem; } .drift .before { display: block; font-size: .75rem; } .drift th { min-width: 7rem; } .rows { font-size: .75rem; } .rows th, .rows td { padding-right: .3rem; } .facts th { width: 7.5rem; }
}
`;
