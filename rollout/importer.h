/*
 * importer.h - `assay-worker import`: the profile of the worker that may write the store.
 *
 * A child of assayd per Import call: JSONL records on stdin, one packed ImportResponse on stdout. It parses
 * git objects and task records, so it is a process of its own: a crash costs that call and nothing else.
 */
#pragma once

/* argv: import STORE REPOS_DIR SOURCE FIRST_LINE. Exit status by sysexits; 0 although single records were refused. */
int importer_main(int argc, char **argv);
