import { API_KEY_PREFIX } from '../../auth/api-key.ts';
import { COMMAND } from '../../command-name.ts';
import { hash, randomBytes } from 'node:crypto';
import { DURATION, durationMs } from '../../config/schema/units.ts';
import { keyIdOf, type StoredKey, storedKeySchema } from '../../store/api-key-store.ts';
import { CliError, EXIT } from '../operator/cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { durationText, jsonText, print, printError, table } from '../operator/output.ts';
import { openKeyStore, type StoreOptions } from './open-store.ts';

export interface KeyOptions extends StoreOptions {
  readonly json: boolean;
}

export interface CreateOptions extends KeyOptions {
  readonly owner?: string;
  /** Names with commas between them. */
  readonly groups?: string;
  /** A duration such as `90d`, or an ISO date. */
  readonly expires?: string;
}

export interface RotateOptions extends KeyOptions {
  /** The time that the old keys stay valid. */
  readonly grace: string;
  /** As of {@link CreateOptions}. Default: the new key is valid for as long as the last one was made for. */
  readonly expires?: string;
}

const KEY_BYTES = 32;
/** A later time has a year of more than four digits, which no store of keys accepts. */
const MAX_TIME_MS = Date.UTC(9999, 11, 31);

/** Makes a key, stores its hash, and prints it once. Resolves with the exit code. */
export async function createKey(name: string, options: CreateOptions): Promise<number> {
  const nowMs = Date.now();
  const { owner, groups, expires } = options;
  const key = newKey();
  const entry = entryOf({
    name,
    sha256: hash('sha256', key),
    ...(owner === undefined ? {} : { owner }),
    ...(groups === undefined ? {} : { groups: groups.split(',').map((group) => group.trim()) }),
    createdAt: new Date(nowMs).toISOString(),
    ...(expires === undefined ? {} : { expiresAt: expiryOf(expires, nowMs) }),
  });
  await using open = await openKeyStore(options);
  await open.store.change((keys) => {
    if (keys.some((other) => other.name === name && !isExpired(other, nowMs))) {
      throw new CliError(
        EXIT.failed,
        `there is a key "${name}" already; ${commandFor(`rotate ${name}`, options)} makes another one`,
      );
    }
    return { add: [entry] };
  });
  show(key, entry, open.store.place, options.json);
  return EXIT.ok;
}

/** Makes another key of a name, and lets the old ones expire. Resolves with the exit code. */
export async function rotateKey(name: string, options: RotateOptions): Promise<number> {
  const nowMs = Date.now();
  if (!DURATION.test(options.grace)) throw usage(`--grace: expected a duration such as 1d, got ${options.grace}`);
  const endMs = nowMs + durationMs(options.grace);
  if (endMs > MAX_TIME_MS) throw usage(`--grace: ${options.grace} ends after the year 9999`);
  const chosen = options.expires === undefined ? undefined : expiryOf(options.expires, nowMs);
  const key = newKey();
  let made: StoredKey | undefined;
  await using open = await openKeyStore(options);
  if (open.isNew === true) throw new CliError(EXIT.failed, noFile(open.store.place, options));
  await open.store.change((keys) => {
    const old = keys.filter((other) => other.name === name && !isExpired(other, nowMs));
    // A store may have no order. Of keys without a time, the last one counts.
    const [last] = old.toReversed().toSorted((a, b) => (b.createdAt ?? '').localeCompare(a.createdAt ?? ''));
    if (last === undefined) {
      throw new CliError(
        EXIT.failed,
        `there is no valid key "${name}" in ${open.store.place}; make it with: ${commandFor(`create ${name}`, options)}`,
      );
    }
    const { expiresAt: _ends, ...kept } = last;
    const expiresAt = chosen ?? renewedExpiry(last, nowMs);
    made = {
      ...kept,
      sha256: hash('sha256', key),
      createdAt: new Date(nowMs).toISOString(),
      ...(expiresAt === undefined ? {} : { expiresAt }),
    };
    return { add: [...old.map((one) => endingAt(one, endMs)), made] };
  });
  if (made !== undefined) show(key, made, open.store.place, options.json);
  return EXIT.ok;
}

/** Removes keys. Gateways refuse them within a second. Resolves with the exit code. */
export async function revokeKey(nameOrId: string, options: KeyOptions): Promise<number> {
  let removed: readonly StoredKey[] = [];
  await using open = await openKeyStore(options);
  if (open.isNew === true) throw new CliError(EXIT.failed, noFile(open.store.place, options));
  await open.store.change((keys) => {
    const named = keys.filter(({ name }) => name === nameOrId);
    removed = named.length > 0 ? named : keys.filter((key) => keyIdOf(key) === nameOrId);
    if (removed.length === 0) {
      throw new CliError(
        EXIT.failed,
        `there is no key with the name or id "${nameOrId}" in ${open.store.place}; ${commandFor('list', options)} shows them`,
      );
    }
    return { remove: removed };
  });
  if (options.json) print(jsonText({ revoked: removed.map((key) => ({ id: keyIdOf(key), name: key.name })) }));
  else for (const key of removed) print(`revoked ${keyIdOf(key)} (${oneLine(key.name)})\n`);
  return EXIT.ok;
}

/** Prints all keys, without their hashes. Resolves with the exit code. */
export async function listKeys(options: KeyOptions): Promise<number> {
  await using open = await openKeyStore(options);
  const [keys, uses] = await Promise.all([open.isNew === true ? [] : open.store.read(), open.store.lastUses()]);
  const nowMs = Date.now();
  if (options.json) {
    const all = keys.map(({ sha256, ...key }) => {
      const usedMs = uses.get(keyIdOf({ sha256 }));
      return {
        id: keyIdOf({ sha256 }),
        ...key,
        ...(usedMs === undefined ? {} : { usedAt: new Date(usedMs).toISOString() }),
      };
    });
    print(jsonText({ place: open.store.place, keys: all }));
    return EXIT.ok;
  }
  if (open.isNew === true) printError(`linkspan: ${noFile(open.store.place, options)}\n`);
  const rows = keys.map((key) => [
    keyIdOf(key),
    oneLine(key.name),
    oneLine(key.owner ?? '-'),
    oneLine(key.groups?.join(',') ?? '-'),
    ageText(key.createdAt === undefined ? undefined : Date.parse(key.createdAt), nowMs),
    expiryText(key, nowMs),
    ageText(uses.get(keyIdOf(key)), nowMs),
  ]);
  print(table([['ID', 'NAME', 'OWNER', 'GROUPS', 'CREATED', 'EXPIRES', 'USED'], ...rows]));
  return EXIT.ok;
}

/** Returns the message about a key file that does not exist. It may be a misspelled path, or have no key yet. */
function noFile(place: string, options: StoreOptions): string {
  const step = `name another one by --file or --config, or make a key in it with: ${commandFor('create <name>', options)}`;
  return `there is no key file ${place}; ${step}`;
}

/** Returns the command that does something else with the same keys. */
function commandFor(rest: string, { file, config }: StoreOptions): string {
  const keys = file !== undefined ? ` --file ${file}` : config !== undefined ? ` --config ${config}` : '';
  return `${COMMAND} key ${rest}${keys}`;
}

function newKey(): string {
  return API_KEY_PREFIX + randomBytes(KEY_BYTES).toString('base64url');
}

/** Checks a new entry. @throws {CliError} that names the wrong part. */
function entryOf(entry: StoredKey): StoredKey {
  const { data, error } = storedKeySchema.safeParse(entry);
  if (data !== undefined) return data;
  const [issue] = error.issues;
  throw usage(`${issue?.path.map(String).join('.') ?? 'key'}: ${issue?.message ?? 'invalid'}`);
}

/** Returns the time when a new key expires, as ISO text. */
function expiryOf(text: string, nowMs: number): string {
  const atMs = DURATION.test(text) ? nowMs + durationMs(text) : timeOf(text);
  if (Number.isNaN(atMs))
    throw usage(`--expires: expected a duration such as 90d, or a date such as 2027-01-31, got ${text}`);
  if (atMs <= nowMs) throw usage(`--expires: ${text} is in the past`);
  if (atMs > MAX_TIME_MS) throw usage(`--expires: ${text} ends after the year 9999`);
  return new Date(atMs).toISOString();
}

/** Returns the end of a key that is made now and lives as long as another. Undefined if the lifetime of that one is endless or unknown. */
function renewedExpiry({ createdAt, expiresAt }: StoredKey, nowMs: number): string | undefined {
  if (createdAt === undefined || expiresAt === undefined) return undefined;
  const endMs = nowMs + Date.parse(expiresAt) - Date.parse(createdAt);
  return new Date(Math.min(endMs, MAX_TIME_MS)).toISOString();
}

/** A date, or a time, of ISO 8601. `Date.parse` takes any number for a year, and the 31st of February for a day of March. */
const ISO_TIME = /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?)?$/;

/** Returns the ms since the epoch; NaN if the text is no time. */
function timeOf(text: string): number {
  const [, date = ''] = ISO_TIME.exec(text) ?? [];
  const day = new Date(date);
  const isDay = !Number.isNaN(day.getTime()) && day.toISOString().startsWith(date);
  return isDay ? Date.parse(text) : Number.NaN;
}

function usage(message: string): CliError {
  return new CliError(EXIT.usage, message);
}

function isExpired({ expiresAt }: StoredKey, nowMs: number): boolean {
  return expiresAt !== undefined && Date.parse(expiresAt) <= nowMs;
}

/** Returns the key with an end that is not later than this. */
function endingAt(key: StoredKey, endMs: number): StoredKey {
  const endsMs = key.expiresAt === undefined ? Infinity : Date.parse(key.expiresAt);
  return { ...key, expiresAt: new Date(Math.min(endsMs, endMs)).toISOString() };
}

function show(key: string, entry: StoredKey, place: string, isJson: boolean): void {
  const { sha256, ...rest } = entry;
  if (isJson) return print(jsonText({ key, id: keyIdOf({ sha256 }), ...rest }));
  const end = entry.expiresAt === undefined ? 'never expires' : `expires at ${entry.expiresAt}`;
  printError(
    `Key "${oneLine(entry.name)}" (${keyIdOf(entry)}) ${end}; its hash is in ${place}. It is shown only now:\n`,
  );
  print(`${key}\n`);
}

function ageText(atMs: number | undefined, nowMs: number): string {
  return atMs === undefined ? '-' : `${durationText(Math.max(0, nowMs - atMs) / 1_000)} ago`;
}

function expiryText(key: StoredKey, nowMs: number): string {
  if (key.expiresAt === undefined) return 'never';
  return isExpired(key, nowMs) ? 'expired' : `in ${durationText((Date.parse(key.expiresAt) - nowMs) / 1_000)}`;
}
