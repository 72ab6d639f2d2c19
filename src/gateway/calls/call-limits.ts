import { matchesAny } from '../../catalog/names/glob.ts';
import { namesOfTool } from '../../catalog/names/name.ts';
import type { Source } from '../../catalog/names/named-items.ts';
import type { RateConfig, Settings } from '../../config/values/config.ts';
import { durationText } from '../../config/schema/units.ts';
import { GatewayError } from '../../errors.ts';
import { groupsUnder } from '../../policy/identity.ts';
import { personOf, type Principal } from '../../policy/principal.ts';
import { isSelectedByRate } from '../../policy/principal-selector.ts';
import { isRetry } from '../../protocol/input-required.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { LeasedRates, Wait } from '../../store/leased-rates.ts';
import type { Counters } from '../../store/shared-counters.ts';
import type { AuditRecorder } from '../records/audit-recorder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import type { RepeatedCalls } from './repeated-calls.ts';
import { getOrMake, KeyedSums } from '../../map-entries.ts';

const NOTHING_TO_END = (): void => undefined;

type LimitSettings = Settings<'rates' | 'repeats' | 'limits' | 'access' | 'upstreams' | 'profiles' | 'names'>;

export interface CallLimitsParts {
  readonly settings: LimitSettings;
  readonly rates: LeasedRates;
  readonly repeats: RepeatedCalls;
  /** Counts the requests of a principal in all processes; undefined if there is no other one. */
  readonly counters: Counters | undefined;
  /** Undefined if there is no audit log. */
  readonly audit: Pick<AuditRecorder, 'refuse'> | undefined;
}

/** A request in the limits of its principal. Its disposal gives back its place among the requests in flight. */
export interface CountedCall extends Disposable {
  /** Uncounts it in rates and repeats, since it was not made. */
  refund(): void;
}

/** The bounds that a tool is under by its names. */
interface ToolBounds {
  /** The rates whose `tools` match it. */
  readonly rates: ReadonlySet<RateConfig>;
  readonly countsRepeats: boolean;
}

/**
 * Bounds the requests of principals at upstreams: how often, how many at once, and how often the same. Asked once for each request that
 * leaves for an upstream. So neither the retry of a parked call nor a poll of a task counts again.
 */
export class CallLimits {
  readonly #parts: CallLimitsParts;
  /** The config that the next two members are for: a reload brings another one. */
  #config: ReturnType<LimitSettings> | undefined;
  /** The rates of each principal. Finding three of them by two claims takes 5 µs. */
  #ratesOf = new WeakMap<Principal, readonly RateConfig[]>();
  /** The bounds of each listed tool, by its definition. */
  #boundsOf = new WeakMap<Source, ToolBounds>();
  readonly #inFlight = new KeyedSums();

  constructor(parts: CallLimitsParts) {
    this.#parts = parts;
  }

  /** True if the config has no such bound. */
  get isOff(): boolean {
    const { rates, repeats, limits } = this.#parts.settings();
    return rates.length === 0 && repeats === undefined && limits.inFlightPerPrincipal === undefined;
  }

  /**
   * Counts a request.
   *
   * @throws {GatewayError} `rate-limited`, `repeated-call`, `overloaded`: the request must not be sent.
   */
  async admit(exchange: OpenExchange, to: UpstreamRoute): Promise<CountedCall> {
    const { inFlightPerPrincipal } = this.#parts.settings().limits;
    const end = inFlightPerPrincipal === undefined ? NOTHING_TO_END : await this.#enter(exchange, inFlightPerPrincipal);
    const counted: (() => void)[] = [];
    const refund = () => {
      for (const uncount of counted) uncount();
    };
    try {
      const bounds = this.#boundsFor(to);
      await this.#countRates(exchange, to, bounds, counted);
      // Counted last, since a call that is refused was not made.
      if (bounds?.countsRepeats === true) this.#countRepeat(exchange, to, counted);
      return { refund, [Symbol.dispose]: end };
    } catch (thrown) {
      refund();
      end();
      throw thrown;
    }
  }

  /** @param counted gets a function for each rate that uncounts the call. @throws {GatewayError} `rate-limited` */
  async #countRates(
    exchange: OpenExchange,
    to: UpstreamRoute,
    bounds: ToolBounds | undefined,
    counted: (() => void)[],
  ): Promise<void> {
    const { principal, view } = exchange.client.caller;
    const { rates } = this.#parts;
    for (const rate of this.#applicable(principal)) {
      if (!holdsFor(rate, view, to.upstream, bounds)) continue;
      const counter = `${rate.name} ${rate.per === 'all' ? '' : personOf(principal)}`;
      const asked = rates.take(counter, rate.limit, rate.windowMs);
      const waitMs: Wait = asked instanceof Promise ? await asked : asked;
      if (waitMs === undefined) {
        counted.push(rates.undoTake(counter));
        continue;
      }
      this.#parts.audit?.refuse(exchange.request, `rate ${rate.name}`);
      throw rateLimited(rate, to.upstream, waitMs);
    }
  }

  /** Returns the rates that hold for a principal, at any endpoint and upstream. */
  #applicable(principal: Principal): readonly RateConfig[] {
    const { rates, access } = this.#current();
    return getOrMake(this.#ratesOf, principal, () => {
      const groups = groupsUnder(access, principal);
      return rates.filter(({ to }) => isSelectedByRate(to, principal, groups));
    });
  }

  /** Returns the bounds that a called tool is under by its names, whichever the client uses; undefined for other requests. */
  #boundsFor({ upstream, upstreamTool, source }: UpstreamRoute): ToolBounds | undefined {
    if (upstreamTool === undefined) return undefined;
    const config = this.#current();
    if (source === undefined) return boundsOf(config, upstream, upstreamTool);
    return getOrMake(this.#boundsOf, source, () => boundsOf(config, upstream, upstreamTool));
  }

  /** Returns the config. Forgets what was found by another one. */
  #current(): ReturnType<LimitSettings> {
    const config = this.#parts.settings();
    if (config !== this.#config) {
      this.#config = config;
      this.#ratesOf = new WeakMap();
      this.#boundsOf = new WeakMap();
    }
    return config;
  }

  /** @param counted gets a function that uncounts the call. @throws {GatewayError} `repeated-call` */
  #countRepeat(exchange: OpenExchange, { tool, upstream }: UpstreamRoute, counted: (() => void)[]): void {
    const { request, client } = exchange;
    const { repeats } = this.#parts.settings();
    if (tool === undefined || repeats === undefined) return;
    const { limit, windowMs } = repeats;
    // The answers to questions differ, though the arguments are the same. Only a client that is asked in answers has a valid state to send.
    if (client.dialect.asksInAnswers && isRetry(request.params)) return;
    const { principal, view } = client.caller;
    const parts = [personOf(principal), view, tool, request.params?.raw('arguments') ?? ''];
    const repeated = this.#parts.repeats.count(parts, limit, windowMs, performance.now());
    if (typeof repeated !== 'number') {
      counted.push(() => repeated.count--);
      return;
    }
    this.#parts.audit?.refuse(request, 'repeats');
    const message =
      `this call was made ${limit} times with the same arguments within ${durationText(windowMs)}. ` +
      'Do not repeat it: use the results that you have, change the arguments, or tell the user that you are stuck';
    throw new GatewayError('repeated-call', { upstream, message, data: { retryAfterMs: Math.ceil(repeated) } });
  }

  /** Takes a place among the requests of the principal. @throws {GatewayError} `overloaded` */
  async #enter({ client, request }: OpenExchange, limit: number): Promise<() => void> {
    const key = personOf(client.caller.principal);
    if (this.#inFlight.of(key) >= limit) throw this.#tooMany(request, limit);
    this.#inFlight.add(key, 1);
    const leave = () => void this.#inFlight.add(key, -1);
    const { counters } = this.#parts;
    const name = `in flight ${key}`;
    if (counters === undefined) return leave;
    if (!(await counters.acquire(name, limit))) {
      leave();
      throw this.#tooMany(request, limit);
    }
    return () => {
      leave();
      counters.release(name);
    };
  }

  #tooMany(request: Request, limit: number): GatewayError {
    this.#parts.audit?.refuse(request, 'inFlightPerPrincipal');
    const message = `${limit} requests are already in flight, as many as gateway.limits.inFlightPerPrincipal allows`;
    return new GatewayError('overloaded', { message });
  }
}

/** Returns whether a rate of the principal holds for a request at an endpoint. */
function holdsFor(rate: RateConfig, view: string, upstream: string, bounds: ToolBounds | undefined): boolean {
  const { endpoints, upstreams, tools } = rate;
  if (endpoints !== undefined && !endpoints.includes(view)) return false;
  if (upstreams !== undefined && !upstreams.includes(upstream)) return false;
  return tools === undefined || bounds?.rates.has(rate) === true;
}

function boundsOf(config: ReturnType<LimitSettings>, upstream: string, tool: string): ToolBounds {
  const { rates, repeats } = config;
  const names = namesOfTool(config, upstream, tool);
  return {
    rates: new Set(rates.filter(({ tools }) => tools !== undefined && matchesAny(tools, names))),
    countsRepeats: repeats !== undefined && matchesAny(repeats.tools, names) && !matchesAny(repeats.exceptTools, names),
  };
}

const SECOND_MS = 1_000;

function rateLimited({ name, limit, windowMs, per }: RateConfig, upstream: string, waitMs: number): GatewayError {
  const whose = per === 'all' ? 'all clients together' : 'you';
  const message =
    `${whose} may make ${limit} such calls per ${durationText(windowMs)} (rate "${name}"). ` +
    `The call was not made. Wait ${Math.ceil(waitMs / SECOND_MS)} s before you try again, and do something else until then`;
  return new GatewayError('rate-limited', { upstream, message, data: { retryAfterMs: Math.ceil(waitMs), rate: name } });
}
