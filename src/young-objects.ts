import { setFlagsFromString } from 'node:v8';

/**
 * Makes V8 allocate all objects young that it would allocate old because earlier ones of the same place in the code have lived long.
 *
 * Under load, objects of requests live for two collections of young objects. V8 would then allocate the next ones old, where they
 * stay, and keep whole requests alive, until a full collection (`docs/decisions/0081-objects-of-requests-are-young.md`).
 */
export function keepObjectsYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}
