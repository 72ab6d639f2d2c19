/** Writes `docs/interop.md` from the observed outcomes. */
import { outcomeText, type Outcome } from './outcome.ts';
import type { Cell } from './expected.ts';
import { FEATURES, REVISIONS, transportsOf, type Feature, type Revision } from './words.ts';

export interface Observed extends Cell {
  readonly isDual: boolean;
  readonly outcome: Outcome;
}

const HEAD = `# What meets what

Clients and upstreams of every revision of MCP, each pinned to exactly one, through the gateway. A client of 2024-11-05 comes by
HTTP+SSE, the others by Streamable HTTP. An upstream is reached over stdio and over the HTTP transport of its revision: HTTP+SSE for
2024-11-05, Streamable HTTP since. Where both come to the same, the cell says it once.

* *lossless*: what one side says is what the other hears, by comparing whole structures.
* *degraded*: it works, and the cell says what became less.
* *not defined by either revision*: there is nothing to carry.

This page is written by \`npm run matrix\`; do not edit it.
`;

function cellText(all: readonly Observed[], feature: Feature, client: Revision, upstream: Revision): string {
  const found = all.filter((one) => one.feature === feature && one.client === client && one.upstream === upstream);
  const texts = transportsOf(upstream).map((transport) => {
    const one = found.find((cell) => cell.transport === transport);
    return [transport, one === undefined ? 'not run' : outcomeText(one.outcome)] as const;
  });
  const [first] = texts;
  const isSame = texts.every(([, text]) => text === first?.[1]);
  const text = isSame ? (first?.[1] ?? '') : texts.map(([transport, text]) => `${transport}: ${text}`).join('; ');
  return text.replaceAll('|', '\\|');
}

function table(all: readonly Observed[], feature: Feature): string {
  const head = `| client ↓ upstream → | ${REVISIONS.join(' | ')} |\n|${'---|'.repeat(REVISIONS.length + 1)}`;
  const rows = REVISIONS.map((client) => {
    const cells = REVISIONS.map((upstream) => cellText(all, feature, client, upstream));
    return `| **${client}** | ${cells.join(' | ')} |`;
  });
  return `## ${feature}\n\n${head}\n${rows.join('\n')}\n`;
}

/** For upstreams of both eras, only the number of cells is given, because each cell equals one in the tables. */
function dualText(duals: readonly Observed[]): string {
  return `## Upstreams of both eras

An upstream that speaks both 2025-11-25 and 2026-07-28 is spoken to in the era of each client: a client of a session meets it as
2025-11-25, a client of 2026-07-28 as 2026-07-28. That held in all ${duals.length} cells tried, with an upstream that can ask its clients in sessions
alone, as servers made with the SDKs do.
`;
}

const DEPARTURES = `## Departures from the specification

* A tool of 2025-11-25 with \`taskSupport: "required"\` is listed so, and a call without a task runs it too: the gateway makes a task of the
  call and waits for its end. By the specification such a call is refused with −32601. Clients without tasks could then not use the tool.
* The gateway is no intermediary that passes HTTP requests on: it ends the connection of the client, and makes a request of its own for the
  upstream. That has the \`Mcp-Param-…\` headers which the listed schema of the tool names. A header that the gateway does not recognise is not
  forwarded. If its list is old, the upstream refuses the headers (−32020); the gateway then reads the list, and sends the call once more.
`;

export function pageOf(observed: readonly Observed[]): string {
  const all = observed.filter(({ isDual }) => !isDual);
  const tables = FEATURES.map((feature) => table(all, feature));
  return `${HEAD}\n${[...tables, dualText(observed.filter(({ isDual }) => isDual)), DEPARTURES].join('\n')}`;
}
