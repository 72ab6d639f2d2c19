import { ERAS, TRANSPORTS, type Era, type TransportKind } from './fixture.ts';
import { FRONTS, type FrontRevision } from './front.ts';
import { SELECTIONS, type SelectionName } from './suite.ts';

/** `single` is `/mcp/<upstream>`; `merged` is `/mcp` with an empty prefix and a second upstream beside it. */
export const ENDPOINTS = ['single', 'merged'] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

const LEGS = ['server', 'tasks', 'client'] as const;
type Leg = (typeof LEGS)[number];

/** The upstream behind the gateway. */
export type Behind = Era | 'tasks';

/** The checked options of the command line. */
export interface Choice {
  readonly direct: boolean;
  readonly only?: string | undefined;
  readonly upstream?: TransportKind | undefined;
  readonly era?: Era | undefined;
  readonly revision?: SelectionName | undefined;
  readonly endpoint?: Endpoint | undefined;
  readonly leg?: Leg | undefined;
}

/** One row of the table. */
export interface Cell {
  readonly endpoint: Endpoint;
  readonly selection: SelectionName;
  readonly only: string | undefined;
  readonly times: number;
}

/** One gateway, or a fixture without one, and its cells in order. */
export interface ServerPlan {
  readonly behind: Behind;
  readonly transport: TransportKind;
  readonly direct: boolean;
  readonly cells: readonly Cell[];
}

/** Client scenarios of one revision, with a client of another. */
export interface ClientPlan {
  readonly front: FrontRevision;
  readonly revision: FrontRevision;
  readonly scenarios: readonly string[];
}

/** This scenario has a race between the last notification and the answer, so one run proves little. */
const RACY = 'tools-call-with-progress';
const RACY_TIMES = 5;

/** The gateway gets credentials for its upstream, which the client in front of it does not. */
const CREDENTIALS: readonly string[] = ['auth/client-credentials-basic', 'auth/client-credentials-jwt'];

/** The client scenarios without sign-in of users. */
const CLIENT_SCENARIOS: Readonly<Record<FrontRevision, readonly string[]>> = {
  '2025-11-25': [
    'initialize',
    'tools_call',
    'elicitation-sep1034-client-defaults',
    'sse-retry',
    'json-schema-2020-12-preservation',
    ...CREDENTIALS,
  ],
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
    'sep-2322-client-request-state',
  ],
};

/** The revisions that the fixture supports. A gateway in front supports them all. */
const SPOKEN: Readonly<Record<Behind, readonly SelectionName[]>> = {
  legacy: ['2025-06-18', '2025-11-25'],
  modern: ['2026-07-28'],
  both: ['2025-06-18', '2025-11-25', '2026-07-28'],
  tasks: ['tasks'],
};
const DATED: readonly SelectionName[] = SPOKEN.both;

function oneOf<T extends string>(all: readonly T[], option: string, value: string | undefined): T | undefined {
  const found = all.find((one) => one === value);
  if (value !== undefined && found === undefined) throw new Error(`--${option} is one of ${all.join(', ')}`);
  return found;
}

/** @throws {Error} that names the option, for an unknown value. */
export function choose(options: {
  readonly direct?: boolean;
  readonly [option: string]: string | boolean | undefined;
}): Choice {
  const text = (option: string) => {
    const value = options[option];
    return typeof value === 'string' ? value : undefined;
  };
  return {
    direct: options.direct ?? false,
    only: text('only'),
    upstream: oneOf(TRANSPORTS, 'upstream', text('upstream')),
    era: oneOf(ERAS, 'era', text('era')),
    revision: oneOf(SELECTIONS, 'revision', text('revision')),
    endpoint: oneOf(ENDPOINTS, 'endpoint', text('endpoint')),
    leg: oneOf(LEGS, 'leg', text('leg')),
  };
}

function picked<T extends string>(all: readonly T[], wanted: T | undefined): readonly T[] {
  return wanted === undefined ? all : all.filter((one) => one === wanted);
}

function selections(behind: Behind, choice: Choice): readonly SelectionName[] {
  if (behind === 'tasks') return picked(SPOKEN.tasks, choice.revision);
  const spoken = choice.direct ? SPOKEN[behind] : DATED;
  return picked(behind === 'legacy' ? [...spoken, '0.1.16'] : spoken, choice.revision);
}

/** Returns further runs of the race, in a revision that the upstream supports. */
function race(behind: Behind, chosen: readonly SelectionName[], { only }: Choice): readonly SelectionName[] {
  if (behind === 'tasks' || (only !== undefined && only !== RACY)) return [];
  const at = behind === 'legacy' ? '2025-11-25' : '2026-07-28';
  return chosen.filter((selection) => selection === at);
}

function cells(behind: Behind, choice: Choice): Cell[] {
  const chosen = selections(behind, choice);
  const endpoints: readonly Endpoint[] = choice.direct ? ['single'] : picked(ENDPOINTS, choice.endpoint);
  return endpoints.flatMap((endpoint) => [
    ...chosen.map((selection) => ({ endpoint, selection, only: choice.only, times: 1 })),
    ...race(behind, chosen, choice).map((selection) => ({ endpoint, selection, only: RACY, times: RACY_TIMES })),
  ]);
}

function behinds(choice: Choice): readonly Behind[] {
  const { era, leg } = choice;
  if (leg === 'client') return [];
  const eras = leg === 'tasks' ? [] : picked(ERAS, era);
  const isTasks = leg === 'tasks' || (leg === undefined && era === undefined);
  return isTasks ? [...eras, 'tasks'] : eras;
}

export function serverPlans(choice: Choice): ServerPlan[] {
  const { direct } = choice;
  const transports: readonly TransportKind[] = direct ? ['http'] : picked(TRANSPORTS, choice.upstream);
  return behinds(choice)
    .flatMap((behind) => transports.map((transport) => ({ behind, transport, direct, cells: cells(behind, choice) })))
    .filter((plan) => plan.cells.length > 0);
}

export function clientPlans(choice: Choice): ClientPlan[] {
  const { leg, direct, only, era, revision } = choice;
  if (leg === 'server' || leg === 'tasks' || era !== undefined) return [];
  const wanted = FRONTS.filter((front) => revision === undefined || front === revision);
  return wanted
    .flatMap((upstream) => {
      // Without a gateway there is no translation.
      const fronts = direct ? [upstream] : FRONTS;
      const scenarios = CLIENT_SCENARIOS[upstream].filter(
        (scenario) => (only === undefined || scenario === only) && !(direct && CREDENTIALS.includes(scenario)),
      );
      return fronts.map((front) => ({ front, revision: upstream, scenarios }));
    })
    .filter(({ scenarios }) => scenarios.length > 0);
}
