import { isRecord } from '../../json/record.ts';
import { basename } from 'node:path';

import type { Data, Document } from '../document/document.ts';
import { isList, valueAt } from '../document/expanded.ts';
import { isJsonFile } from '../files/config-files.ts';
import type { Problem } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import { gatewaySchema } from '../schema/gateway-schema.ts';
import { MAP_KEYS } from '../schema/schema.ts';

type Keys = Readonly<Record<string, Data>>;

/** Settings of ours that belong under `gateway`. */
const SETTINGS = Object.keys(gatewaySchema.shape);

/** The top-level keys of our own file. */
const OWN_KEYS = ['$schema', 'mcpServers', 'inputs', 'gateway'];

/** Keys of the entry of an upstream that say which server it is. */
const SERVER_KEYS = ['type', 'command', 'cmd', 'url', 'serverUrl', 'httpUrl', 'uri'];

/** Keys of the operator, such as templates with a YAML anchor, begin with this. */
const FREE_PREFIX = 'x-';

/** The settings of ours that are settings of a client too, by the key under which that client keeps its servers. */
const CLIENTS_SETTINGS: ReadonlyMap<string, readonly string[]> = new Map([
  ['mcp_servers', ['instructions', 'profiles']],
  ['context_servers', ['profiles']],
  ['mcp', ['instructions', 'logLevel']],
]);

/** Keys by which files of Claude Desktop and Claude Code differ from ours: they have `mcpServers` too. */
const CLAUDE_KEYS = ['globalShortcut', 'preferences', 'numStartups', 'projects'];

/**
 * Returns a problem for each key at the top level that is not allowed there. In our own file those are all unknown keys. In the file of a
 * client they are the settings of ours, and a misspelled `gateway`. Of both, it is a section `gateway` among the upstreams. Without them the
 * gateway would run with defaults, which ask for no key.
 */
export function topLevelProblems(document: Document): readonly Problem[] {
  const { data } = document;
  if (!isRecord(data)) return [];
  const refusal = isOwnFile(document) ? refusalInOwn : refusalInClients;
  const misplacedKeys = Object.keys(data).flatMap((key) => {
    const message = refusal(key, data);
    return message === undefined ? [] : [document.problem([key], message, 'key')];
  });
  const sections = MAP_KEYS.filter((key) => isSection(valueAt(data, [key, 'gateway'])));
  const message = 'belongs at the top level of the file, beside the map of upstreams';
  return [...misplacedKeys, ...sections.map((key) => document.problem([key, 'gateway'], message, 'key'))];
}

/** Returns whether the entry of an upstream is our section `gateway`, one level too deep: it has settings, and names no server. */
function isSection(entry: Data | undefined): boolean {
  const keys = isRecord(entry) ? Object.keys(entry) : [];
  return keys.some((key) => SETTINGS.includes(key)) && !keys.some((key) => SERVER_KEYS.includes(key));
}

/** Returns whether a file is ours. Either no client is known that writes such a one, or it has `gateway` and no mark of a client. */
export function isOwnFile({ file, data }: Document): boolean {
  if (!isRecord(data)) return false;
  const has = (key: string): boolean => Object.hasOwn(data, key);
  const { $schema } = data;
  const isClientsSchema = typeof $schema === 'string' && /^https?:/.test($schema) && !$schema.includes('linkspan');
  if (isClientsSchema || clientsKey(data) !== undefined || isList(data['mcpServers'])) return false;
  const name = basename(file);
  if (name === 'settings.json' || CLAUDE_KEYS.some(has)) return false;
  const isOurs = !isJsonFile(name) || name.startsWith('linkspan');
  return has('gateway') || ((has('mcpServers') || has('servers')) && isOurs);
}

/** Returns the key of the servers of a client whose files have many other keys; undefined if there is none. */
function clientsKey(data: Keys): string | undefined {
  const strong = ['mcp_servers', 'context_servers'].find((key) => Object.hasOwn(data, key));
  if (strong !== undefined || Object.hasOwn(data, 'mcpServers') || Object.hasOwn(data, 'servers')) return strong;
  return ['mcp', 'extensions'].find((key) => isRecord(data[key]));
}

function refusalInOwn(key: string, data: Keys): string | undefined {
  // Several maps of upstreams have an error of their own.
  if (OWN_KEYS.includes(key) || MAP_KEYS.some((map) => map === key) || key.startsWith(FREE_PREFIX)) return undefined;
  if (SETTINGS.includes(key)) return misplaced(key);
  const near = suggest(key, OWN_KEYS);
  const setting = near === undefined ? suggest(key, SETTINGS) : undefined;
  if (near !== undefined) return `unknown key${didYouMean(near)}`;
  if (setting !== undefined) return `unknown key${didYouMean(`gateway.${setting}`)}`;
  const value = data[key];
  const isUpstream = isRecord(value) && ['command', 'url'].some((member) => Object.hasOwn(value, member));
  if (isUpstream) return 'unknown key; an upstream belongs under "mcpServers"';
  return `unknown key; known are ${OWN_KEYS.join(', ')}, and names of your own that begin with "${FREE_PREFIX}"`;
}

function refusalInClients(key: string, data: Keys): string | undefined {
  const theirs = CLIENTS_SETTINGS.get(clientsKey(data) ?? '') ?? [];
  if (SETTINGS.includes(key)) return theirs.includes(key) ? undefined : misplaced(key);
  if (key === 'gateway' || suggest(key, ['gateway']) === undefined) return undefined;
  return `unknown key${didYouMean('gateway')}`;
}

function misplaced(key: string): string {
  return `belongs under "gateway", as gateway.${key}`;
}
