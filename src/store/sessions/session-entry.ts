import { jsonOf } from '../../json/record.ts';
import { z } from 'zod';

const rangeSchema = z.tuple([z.int(), z.int(), z.int()]);

const entrySchema = z.union([
  /** Ended sessions of one principal (its hash): first and last serial number, and ms since the epoch when their ids expire. */
  z.strictObject({ owner: z.string(), ended: z.array(rangeSchema) }),
  /** The complete record of a session. */
  z.strictObject({
    id: z.string(),
    expires: z.int(),
    level: z.string().exactOptional(),
    uris: z.array(z.string()),
    used: z.array(z.string()).exactOptional(),
  }),
  z.strictObject({ id: z.string(), expires: z.int(), level: z.string() }),
  z.strictObject({ id: z.string(), expires: z.int(), subscribe: z.string() }),
  z.strictObject({ id: z.string(), expires: z.int(), unsubscribe: z.string() }),
  z.strictObject({ id: z.string(), expires: z.int(), use: z.string() }),
  /** An upstream, and the text of its attachment. Never a part of the complete record, which earlier versions read too. */
  z.strictObject({ id: z.string(), expires: z.int(), attach: z.tuple([z.string(), z.string()]) }),
]);

/** One line of the session journal. Applying an entry twice has the same effect as applying it once. */
export type SessionEntry = z.output<typeof entrySchema>;

export type RecordEntry = Exclude<SessionEntry, { readonly ended: unknown }>;

/** Returns the parts of the id of a session in the journal: the hash of its principal, and its serial number. */
export function parseId(id: string): { readonly name: string; readonly serial: number } {
  const [name = '', serial = ''] = id.split('.');
  return { name, serial: Number(serial) };
}

/** Parses a line of the journal. Returns undefined if it is not an entry, because the process or the disk failed while it was written. */
export function parseEntry(line: string): SessionEntry | undefined {
  return entrySchema.safeParse(jsonOf(line)).data;
}
