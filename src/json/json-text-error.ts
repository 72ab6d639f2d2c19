import type { LimitName } from '../limits.ts';

/**
 * Thrown for text that is not valid JSON, repeats a member, or exceeds a limit. `refused` names the limit, or `duplicate`; undefined for
 * invalid JSON. `offset` is in UTF-16 units.
 */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
  readonly offset: number;
  readonly refused: LimitName | 'duplicate' | undefined;

  constructor(what: string, offset: number, refused?: LimitName | 'duplicate') {
    super(`${what} at offset ${offset}`);
    this.offset = offset;
    this.refused = refused;
  }
}
