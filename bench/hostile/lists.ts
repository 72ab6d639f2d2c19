import { FixtureServer } from '../fixture-server.ts';
import { memory } from '../process-cost.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { underAttack } from './arena.ts';

const ITEM_BYTES = 300_000;
const ITEMS_A_PAGE = 50;
const LISTING_MS = 20_000;
/** The attack ends at this size, to protect the machine. */
const MOST_MB = 4_000;

/** An upstream lists endless pages. */
async function endlessList(bench: Bench): Promise<Figures> {
  let pages = 0;
  const description = 'a tool that is described at length '.repeat(ITEM_BYTES / 35);
  await using upstream = await FixtureServer.start({
    capabilities: { tools: {} },
    answer: () => {
      const tools = Array.from({ length: ITEMS_A_PAGE }, (_, index) => {
        return { name: `tool_${pages}_${index}`, description, inputSchema: { type: 'object' } };
      });
      return { tools, nextCursor: String(++pages) };
    },
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async ({ gateway, open, pass }) => {
      // Starts the listing. The answer need not come in time.
      void open().catch(() => undefined);
      const untilMs = performance.now() + LISTING_MS;
      while (performance.now() < untilMs && memory([gateway.pid]).rssMb < MOST_MB) await pass(250);
      return { pages };
    },
  });
}

const READS = 2;

function templates(count: number, expressions: number): readonly object[] {
  const variables = Array.from({ length: expressions }, (_, index) => `{v${index}}`).join('');
  return Array.from({ length: count }, (_, index) => {
    return { name: `template ${index}`, uriTemplate: `http://x/${variables}/end${index}` };
  });
}

interface TemplateShape {
  readonly count: number;
  readonly expressions: number;
  readonly uriChars: number;
}

/** An upstream has many templates that nearly match a long URI. */
async function costlyTemplates(bench: Bench, shape: TemplateShape): Promise<Figures> {
  const { count, expressions, uriChars } = shape;
  await using upstream = await FixtureServer.start({
    capabilities: { resources: {} },
    answer: ({ method }) => {
      if (method === 'resources/list') return { resources: [] };
      if (method === 'resources/templates/list') return { resourceTemplates: templates(count, expressions) };
      return { contents: [{ uri: 'http://x/', text: 'x' }] };
    },
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async ({ open }) => {
      const client = await open();
      await client.request('resources/templates/list');
      // A web URI has no id of an upstream, so that only its template decides.
      const uri = `http://x/${'a'.repeat(uriChars)}`;
      const beganMs = performance.now();
      for (let read = 0; read < READS; read++) await client.request('resources/read', { uri });
      return { 'ms a read': (performance.now() - beganMs) / READS };
    },
  });
}

const ENDLESS = `${ITEMS_A_PAGE} tools of ${ITEM_BYTES / 1_000} kB a page`;

export const LISTS: Series = {
  id: 'N-21',
  title: `a list without an end, for ${LISTING_MS / 1_000} s`,
  points: [{ label: ENDLESS, measure: endlessList }],
  bounds: [
    { point: ENDLESS, column: 'peak +MB', atMost: 256 },
    { point: ENDLESS, column: 'block ms', atMost: 250 },
  ],
};

const SHAPES: readonly TemplateShape[] = [
  { count: 1, expressions: 31, uriChars: 4_000 },
  { count: 500, expressions: 1, uriChars: 4_000 },
  { count: 500, expressions: 31, uriChars: 2_000 },
  { count: 500, expressions: 31, uriChars: 4_000 },
];

function templatePoint(shape: TemplateShape): Point {
  const { count, expressions, uriChars } = shape;
  return {
    label: `${count} templates, ${expressions} expressions, ${uriChars} characters`,
    measure: (bench) => costlyTemplates(bench, shape),
  };
}

const TEMPLATE_POINTS = SHAPES.map(templatePoint);

export const TEMPLATES: Series = {
  id: 'N-22',
  title: 'resources/read of a long URI that templates nearly match',
  points: TEMPLATE_POINTS,
  bounds: TEMPLATE_POINTS.map(({ label }) => ({ point: label, column: 'block ms', atMost: 50 })),
};
