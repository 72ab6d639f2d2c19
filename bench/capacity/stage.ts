import { Gateway, type GatewayOptions, OWN_CHECKOUT } from '../gateway-program.ts';
import { WITH_HEAP_REPORT } from '../heap.ts';
import { makePrincipals } from '../keys.ts';
import { UpstreamProgram } from '../upstream-program.ts';
import { startLargeAnswers } from './large-answers.ts';
import { type CallerJob, type CallerReport, readCallerReport } from './caller-job.ts';
import { Helper } from './helper.ts';

/** The folder and the cores of a scenario. */
export interface Place {
  readonly dir: string;
  readonly subjectCore: number | undefined;
  readonly othersCore: number | undefined;
}

/** The environment that `Dockerfile` and the systemd unit set for the gateway. */
const IMAGE_ENV = { MALLOC_MMAP_THRESHOLD_: '131072' };

/** Each has an API key, so that no bound per principal has to be raised: 1 000 sessions and as many streams by default. */
export const PRINCIPALS = 12;

/** The calls of a scenario: by which revision, and over how many connections. */
export interface Calling {
  readonly revision: CallerJob['revision'];
  readonly connections: number;
}

/** A gateway with its default config, two upstreams, one with large answers, and the credentials of its clients. */
export class Stage implements AsyncDisposable {
  readonly gateway: Gateway;
  readonly authorizations: readonly string[];
  readonly place: Place;
  readonly #stack: AsyncDisposableStack;
  readonly #upstreams: Readonly<Record<CallerJob['revision'], UpstreamProgram>>;
  #callers = 0;

  private constructor(
    place: Place,
    stack: AsyncDisposableStack,
    parts: {
      gateway: Gateway;
      authorizations: readonly string[];
      upstreams: Readonly<Record<CallerJob['revision'], UpstreamProgram>>;
    },
  ) {
    this.place = place;
    this.#stack = stack;
    this.gateway = parts.gateway;
    this.authorizations = parts.authorizations;
    this.#upstreams = parts.upstreams;
  }

  /** @param program how the gateway is started, if not as it is. */
  static async start(place: Place, program: Pick<GatewayOptions, 'wrapper' | 'nodeArgs'> = {}): Promise<Stage> {
    await using stack = new AsyncDisposableStack();
    const { dir, subjectCore, othersCore } = place;
    const legacy = stack.use(await UpstreamProgram.start(dir, othersCore));
    const modern = stack.use(await UpstreamProgram.start(dir, othersCore, '2026-07-28'));
    const large = stack.use(await startLargeAnswers());
    const { authorizations, settings } = makePrincipals(PRINCIPALS);
    const gateway = stack.use(
      await Gateway.start({
        name: 'gateway',
        checkout: OWN_CHECKOUT,
        dir,
        core: subjectCore,
        servers: { legacy: { url: legacy.url }, modern: { url: modern.url }, large: { url: large.url } },
        settings: { ...settings, accessLog: 'auto' },
        env: { ...WITH_HEAP_REPORT, ...IMAGE_ENV },
        ...program,
      }),
    );
    const upstreams = { '2025-11-25': legacy, '2026-07-28': modern };
    return new Stage(place, stack.move(), { gateway, authorizations, upstreams });
  }

  /** Opens clients that call through the gateway. */
  callers({ revision, connections }: Calling): Promise<Helper<CallerReport>> {
    const toolPrefix = revision === '2026-07-28' ? 'modern__' : 'legacy__';
    const { url } = this.gateway;
    return this.#call({ url, authorizations: this.authorizations, revision, tool: 'small', toolPrefix, connections });
  }

  /** Opens clients that call the upstream without the gateway. */
  directCallers({ revision, connections }: Calling): Promise<Helper<CallerReport>> {
    const { url } = this.#upstreams[revision];
    return this.#call({ url, authorizations: [], revision, tool: 'small', toolPrefix: '', connections });
  }

  #call(job: CallerJob): Promise<Helper<CallerReport>> {
    const { dir, othersCore: core } = this.place;
    return Helper.start('callers.ts', job, readCallerReport, { name: `callers-${++this.#callers}`, dir, core });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
