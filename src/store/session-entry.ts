import { z } from 'zod';

const rangeSchema = z.tuple([z.int(), z.int(), z.int()]);

const entrySchema = z.union([
  /** Sessions of one owner that have ended: first and last serial number, and ms since the epoch when their ids expire. */
  z.strictObject({ owner: z.string(), ended: z.array(rangeSchema) }),
  /** A session's record as a whole. */
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
]);

/** One line of the session journal. Reading an entry twice has the effect of reading it once. */
export type SessionEntry = z.output<typeof entrySchema>;

export function entryText(entry: SessionEntry): string {
  return JSON.stringify(entry);
}

/** Returns undefined for a line that is not an entry: the process or the disk ended in the middle of it. */
export function parseEntry(line: string): SessionEntry | undefined {
  try {
    return entrySchema.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
