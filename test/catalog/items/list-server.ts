import type { Transport as Transport2 } from '@modelcontextprotocol/client';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { type Catalog, listTexts } from '../../../src/catalog/catalog.ts';
import type { ListName } from '../../../src/catalog/page.ts';
import { LATEST_MODERN, type Revision } from '../../../src/protocol/revisions.ts';

const LISTS: ReadonlyMap<string, ListName> = new Map([
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
]);

const SERVER = { name: 'lists', version: '1' };
const CAPABILITIES = { tools: {}, prompts: {}, resources: {} };
const COMPLETE = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };

/** A server within the client's process that lists a catalog in the words of one revision. */
export class ListServer {
  readonly #revision: Revision;
  /** May be exchanged between two lists. */
  catalog: Catalog;
  onmessage?: (message: JSONRPCMessage) => void;
  onclose?: () => void;

  constructor(revision: Revision, catalog: Catalog) {
    this.#revision = revision;
    this.catalog = catalog;
  }

  /** The server as a transport of either SDK. */
  transport(): Transport & Transport2 {
    const transport: Transport & Transport2 = {
      start: async () => {},
      close: async () => transport.onclose?.(),
      send: async (message: object) => {
        if (!('method' in message) || !('id' in message)) return;
        const { method, id } = message;
        if (typeof id !== 'number' && typeof id !== 'string') return;
        const result = this.#result(String(method));
        queueMicrotask(() => transport.onmessage?.({ jsonrpc: '2.0', id, ...result }));
      },
    };
    return transport;
  }

  #result(method: string): { result: Record<string, unknown> } | { error: { code: number; message: string } } {
    const isModern = this.#revision === LATEST_MODERN;
    if (method === 'initialize' && !isModern) {
      return { result: { protocolVersion: this.#revision, capabilities: CAPABILITIES, serverInfo: SERVER } };
    }
    if (method === 'server/discover' && isModern) {
      const supportedVersions = [LATEST_MODERN];
      return { result: { supportedVersions, capabilities: CAPABILITIES, serverInfo: SERVER, ...COMPLETE } };
    }
    const list = LISTS.get(method);
    if (list === undefined) return { error: { code: -32601, message: `no ${method}` } };
    const items: unknown = JSON.parse(`[${listTexts(this.catalog, list, this.#revision).join(',')}]`);
    return { result: { [list]: items, ...(isModern ? COMPLETE : {}) } };
  }
}
