import type { LimitName } from '../limits.ts';

/**
 * The text is not JSON, or not JSON we carry. `offset` is in UTF-16 units.
 *
 * `refused` says why JSON that is well-formed up to there is not carried; undefined where the text is no JSON.
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
