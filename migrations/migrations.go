// Package migrations embeds the SQL that creates and extends the tables, one folder per database.
//
// Files run in the order of their names, each once and in a transaction of its own. They only add: replicas of the
// previous release keep working on the tables of the next one, and a file that was released never changes. Statements
// say IF NOT EXISTS, so that an automatic run passes over what was applied by hand.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed postgres/*.sql
var postgres embed.FS

//go:embed sqlite/*.sql
var sqlite embed.FS

// Postgres holds the files for Postgres at its root.
func Postgres() fs.FS { return sub(postgres, "postgres") }

// SQLite holds the files for SQLite at its root.
func SQLite() fs.FS { return sub(sqlite, "sqlite") }

func sub(files embed.FS, folder string) fs.FS {
	root, err := fs.Sub(files, folder)
	if err != nil { // unreachable: the folder is a valid path
		panic(err)
	}
	return root
}
