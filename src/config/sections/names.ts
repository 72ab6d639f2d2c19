import { endpointPath } from '../../endpoint-path.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** The names in a config file that its settings may use. Disabled upstreams count, so that no setting is wrong while one is out of use. */
export class Names {
  /** Ids of upstreams, by their ids and by their keys in the file. */
  readonly upstreams: ReadonlyMap<string, string>;
  /** Ids of views, by the paths of their endpoints. */
  readonly views: ReadonlyMap<string, string>;
  /** Ids of the upstreams of each profile; undefined for all. */
  readonly #profiles: ReadonlyMap<string, ReadonlySet<string> | undefined>;

  /** @param keys of the upstreams in the file, by their ids. */
  constructor(keys: ReadonlyMap<string, string>, profiles: GatewaySettings['profiles']) {
    const ids = new Map([...keys].flatMap(([id, key]) => [[id, id] as const, [key, id] as const]));
    this.upstreams = ids;
    this.views = new Map(['', ...keys.keys(), ...Object.keys(profiles)].map((id) => [endpointPath(id), id]));
    this.#profiles = new Map(
      Object.entries(profiles).map(([id, { upstreams }]) => [
        id,
        upstreams && new Set(upstreams.map((one) => ids.get(one) ?? one)),
      ]),
    );
  }

  /** Returns whether one of these upstreams is at one of these endpoints. Undefined is all of them; endpoints are ids of views. */
  meet(upstreams: readonly string[] | undefined, endpoints: readonly string[] | undefined): boolean {
    if (upstreams === undefined || endpoints === undefined) return true;
    return upstreams.some((id) => endpoints.some((endpoint) => this.#isAt(id, endpoint)));
  }

  #isAt(id: string, endpoint: string): boolean {
    if (endpoint === '' || endpoint === id) return true;
    return this.#profiles.has(endpoint) && (this.#profiles.get(endpoint)?.has(id) ?? true);
  }
}
