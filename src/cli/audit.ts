import { isCode, undefinedIfMissing } from '../thrown.ts';
import { access, readFile } from 'node:fs/promises';
import { auditKeyOf, type AuditKey } from '../audit/chain.ts';
import { headOf } from '../audit/file-sink.ts';
import { type Head, readHead } from '../audit/head.ts';
import { keyFileIn, readKeyFile } from '../audit/key-file.ts';
import { filesInOrder } from '../audit/files-in-order.ts';
import { seqInName } from '../audit/renamed-files.ts';
import { type AuditReport, oddKindOf, verifyAudit } from '../audit/verify.ts';
import type { Config } from '../config/values/config.ts';
import { findConfigFile } from '../config/find-file.ts';
import { StartError } from '../errors.ts';
import { countText, jsonText, print, printError } from './operator/output.ts';
import { loadForReading } from './start.ts';

/** The command-line options of `audit verify`. */
export interface AuditVerifyOptions {
  readonly config?: string;
  readonly keyFile?: string;
  readonly head?: string;
  /** Checks without a signed head, so that records missing at the end are not noticed. */
  readonly withoutHead: boolean;
  /** Accepts that earlier records are in other files. */
  readonly part: boolean;
  readonly json: boolean;
}

const MAX_SHOWN = 10;

/**
 * Checks an audit log and prints what is wrong with it. Resolves with the exit code: 1 if anything is.
 *
 * @param files of the log, in any order; renamed files beside them are added. Empty: those of the config.
 * @throws {StartError} if a file or the key cannot be read.
 */
export async function auditVerify(files: readonly string[], options: AuditVerifyOptions): Promise<number> {
  for (const file of files) await assertThere(file);
  const config = options.keyFile === undefined || files.length === 0 ? await configOf(files, options) : undefined;
  const named = files.length > 0 ? files : [await configuredFile(config)];
  const keys = (await secretsOf(options, config)).map(auditKeyOf);
  const newest = named.findLast((file) => seqInName(file) === undefined) ?? named.at(-1) ?? '';
  const head = options.withoutHead ? undefined : await findHead(options.head ?? headOf(newest), keys);
  const report = await verifyAudit(filesInOrder(named), { keys, head, isPart: options.part });
  if (options.json) print(jsonText(report));
  else show(report);
  return report.problemCount === 0 ? 0 : 1;
}

/** @throws {StartError} if there is nothing at the path. */
async function assertThere(file: string, step = ''): Promise<void> {
  await access(file).catch((thrown: unknown) => {
    throw isCode(thrown, 'ENOENT') || isCode(thrown, 'ENOTDIR')
      ? new StartError(`there is no file ${file}${step}`)
      : thrown;
  });
}

async function configOf(files: readonly string[], options: AuditVerifyOptions): Promise<Config> {
  if (files.length > 0 && options.config === undefined && findConfigFile(process.cwd(), process.env) === undefined) {
    throw new StartError('name the key of the audit log with --key-file, or the config that has it with --config');
  }
  return (await loadForReading(options)).config;
}

/** Returns the file of the log that the config names. @throws {StartError} if it names none, or one that is not there. */
async function configuredFile(config: Config | undefined): Promise<string> {
  const file = config?.audit?.file;
  if (file === undefined) {
    throw new StartError('name the files of the audit log: the config has no gateway.audit.file');
  }
  const step = 'no gateway has written it yet, or it was moved; name the files of the log';
  await assertThere(file, `, which is gateway.audit.file: ${step}`);
  return file;
}

async function secretsOf({ keyFile }: AuditVerifyOptions, config: Config | undefined): Promise<readonly string[]> {
  const inConfig = keyFile === undefined ? (config?.audit?.keys ?? []) : [];
  if (inConfig.length > 0) return inConfig;
  const path = keyFile ?? keyFileIn(config?.stateDir ?? '');
  await assertNotOdd(path, 'name the file of the key with --key-file');
  const secret = await readKeyFile(path, 'any-for-root');
  if (secret === undefined)
    throw new StartError(`there is no key file ${path}${keyFile === undefined ? '; name it with --key-file' : ''}`);
  return [secret];
}

/** @throws {StartError} if there is no head, or none of the keys has signed it. */
async function findHead(path: string, keys: readonly AuditKey[]): Promise<Head> {
  await assertNotOdd(path, 'name the file of the signed head with --head');
  const text = await readFile(path, 'utf8').catch(undefinedIfMissing);
  if (text === undefined) {
    throw new StartError(
      `there is no signed head ${path}, so records that are missing at the end cannot be noticed. ` +
        'Name it with --head, or check the rest with --without-head',
    );
  }
  const head = readHead(keys, text);
  if (head === undefined) throw new StartError(`${path} is not a head that a key of this audit log has signed`);
  return head;
}

/** @throws {StartError} if there is something at the path that is no regular file. The message ends with the step. */
async function assertNotOdd(path: string, step: string): Promise<void> {
  const oddKind = await oddKindOf(path).catch(undefinedIfMissing);
  if (oddKind !== undefined) throw new StartError(`${path} is ${oddKind}, and no file; ${step}`);
}

function show(report: AuditReport): void {
  for (const { file, line, message } of report.problems) {
    printError(`${file}${line === 0 ? '' : `:${line}`}: ${message}\n`);
  }
  const more = report.problemCount - report.problems.length;
  if (more > 0) printError(`and ${countText(more, 'more problem')}\n`);
  const { files, records, firstSeq = 0, lastSeq = 0, starts, dropped, unended, isTorn } = report;
  const lines = [
    `${countText(records, 'record')} (${firstSeq} to ${lastSeq}) in ${countText(files.length, 'file')}, ${countText(starts, 'start')}`,
    ...(dropped > 0
      ? [
          `${countText(dropped, 'record')} could not be written and ${dropped === 1 ? 'is' : 'are'} lost, as the log says`,
        ]
      : []),
    ...(unended.length > 0
      ? [
          `${countText(unended.length, 'call')} without a record of the end: ${unended.slice(0, MAX_SHOWN).join(', ')}${unended.length > MAX_SHOWN ? ', …' : ''}`,
        ]
      : []),
    ...(isTorn ? ['the last line is unfinished'] : []),
    report.problemCount === 0 ? 'no problem found' : `${countText(report.problemCount, 'problem')} found`,
  ];
  print(`${lines.join('\n')}\n`);
}
