// The bundle knows the names of a CommonJS package only where they are imported statically. This module is what is imported when needed.
export { Cluster, Redis } from 'ioredis';
