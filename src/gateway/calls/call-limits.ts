import { isIncluded, matchesGlob } from '../../catalog/names/glob.ts';
import type { RateConfig, RepeatsConfig, Settings } from '../../config/values/config.ts';
import { durationText } from '../../config/schema/units.ts';
import { GatewayError } from '../../errors.ts';
import type { AccessConfig } from '../../policy/access-config.ts';
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

export interface CallLimitsParts {
  readonly settings: Settings<'rates' | 'repeats' | 'limits' | 'access'>;
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

/**
 * Bounds the requests of principals at upstreams: how often, how many at once, and how often the same. Asked once for each request that
 * leaves for an upstream. So neither the retry of a parked call nor a poll of a task counts again.
 */
export class CallLimits {
  readonly #parts: CallLimitsParts;
  /**
   * The rates of each principal, for one list of rates and one access policy: a reload brings others. Finding three of them by two claims takes
   * 5 µs.
   */
  #rates: readonly RateConfig[] = [];
  #access: AccessConfig | undefined;
  #ratesOf = new WeakMap<Principal, readonly RateConfig[]>();
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
    const { repeats, limits } = this.#parts.settings();
    const { inFlightPerPrincipal } = limits;
    const end = inFlightPerPrincipal === undefined ? NOTHING_TO_END : await this.#enter(exchange, inFlightPerPrincipal);
    const counted: (() => void)[] = [];
    const refund = () => {
      for (const uncount of counted) uncount();
    };
    try {
      await this.#countRates(exchange, to, counted);
      // Counted last, since a call that is refused was not made.
      if (repeats !== undefined) this.#countRepeat(exchange, to, repeats, counted);
      return { refund, [Symbol.dispose]: end };
    } catch (thrown) {
      refund();
      end();
      throw thrown;
    }
  }

  /** @param counted gets a function for each rate that uncounts the call. @throws {GatewayError} `rate-limited` */
  async #countRates(exchange: OpenExchange, to: UpstreamRoute, counted: (() => void)[]): Promise<void> {
    const { principal, view } = exchange.client.caller;
    const { rates } = this.#parts;
    for (const rate of this.#applicable(principal)) {
      if (!holdsFor(rate, view, to)) continue;
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
    const { rates, access } = this.#parts.settings();
    if (rates !== this.#rates || access !== this.#access) {
      this.#rates = rates;
      this.#access = access;
      this.#ratesOf = new WeakMap();
    }
    return getOrMake(this.#ratesOf, principal, () => {
      const groups = groupsUnder(access, principal);
      return rates.filter(({ to }) => isSelectedByRate(to, principal, groups));
    });
  }

  /** @param counted gets a function that uncounts the call. @throws {GatewayError} `repeated-call` */
  #countRepeat(
    exchange: OpenExchange,
    { tool, upstream }: UpstreamRoute,
    settings: RepeatsConfig,
    counted: (() => void)[],
  ): void {
    const { request, client } = exchange;
    const { limit, windowMs, tools, exceptTools } = settings;
    if (tool === undefined || !isIncluded({ includeTools: tools, excludeTools: exceptTools }, tool)) return;
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
function holdsFor(
  { endpoints, upstreams, tools }: RateConfig,
  view: string,
  { upstream, tool }: UpstreamRoute,
): boolean {
  if (endpoints !== undefined && !endpoints.includes(view)) return false;
  if (upstreams !== undefined && !upstreams.includes(upstream)) return false;
  return tools === undefined || (tool !== undefined && tools.some((glob) => matchesGlob(glob, tool)));
}

const SECOND_MS = 1_000;

function rateLimited({ name, limit, windowMs, per }: RateConfig, upstream: string, waitMs: number): GatewayError {
  const whose = per === 'all' ? 'all clients together' : 'you';
  const message =
    `${whose} may make ${limit} such calls per ${durationText(windowMs)} (rate "${name}"). ` +
    `The call was not made. Wait ${Math.ceil(waitMs / SECOND_MS)} s before you try again, and do something else until then`;
  return new GatewayError('rate-limited', { upstream, message, data: { retryAfterMs: Math.ceil(waitMs), rate: name } });
}
