import * as z from 'zod';
import { count, duration, flag, size, texts } from './scalars.ts';

/** The bounds of one process of a stdio upstream. */
export const processLimits = z.strictObject(
  {
    memory: size('16MiB', '1024GiB')
      .optional()
      .describe('Memory of a process and of all that it has started. Above it, they are killed. Needs Linux.'),
    openFiles: count(16, 1_000_000).optional().describe('Open files of a process.'),
    cpuTime: duration('1s', '365d')
      .optional()
      .describe('CPU time of a process from its start, in whole seconds. Above it, the process is killed.'),
  },
  { error: 'expected a map with memory, openFiles or cpuTime' },
);

/** The places that a process in a sandbox sees besides the programs of the system. */
export const sandbox = z.strictObject(
  {
    read: texts('expected a list of paths')
      .prefault([])
      .describe('Files and folders that it may read, relative to this file.'),
    write: texts('expected a list of paths')
      .prefault([])
      .describe('Files and folders that it may read and write, relative to this file.'),
    network: flag().prefault(false).describe('Whether it may use the network.'),
  },
  { error: 'expected a map with read, write or network; {} is a sandbox with none of them' },
);
