package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// startWithin bounds the making and the start of the throwaway server.
const startWithin = time.Minute

// watcher runs the server and ends it when its own standard input ends, which the kernel sees to when the test process
// is gone, however it went. It then removes the folder.
const watcher = `
"$1/postgres" -D "$2/data" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
	-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 >"$2/log" 2>&1 &
cat >/dev/null
kill -QUIT $!
wait $!
rm -rf "$2"
`

// serverInput keeps the watcher alive. Nothing is written to it, and nothing but the end of the process closes it.
var serverInput any

// startServer makes a database cluster in a temporary folder, starts a server on it and returns its address.
func startServer() (string, error) {
	binaries, err := newestBinaries()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "ktms-postgres-")
	if err != nil {
		return "", err
	}
	user, err := serverUser(folder)
	if err != nil {
		os.RemoveAll(folder)
		return "", err
	}
	address, err := startIn(folder, binaries, user)
	if err != nil {
		os.RemoveAll(folder)
		return "", fmt.Errorf("%s: %w", binaries, err)
	}
	return address, nil
}

func startIn(folder, binaries string, as func(*exec.Cmd)) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(binaries, "initdb"), "-D", filepath.Join(folder, "data"),
		"-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	initdb.Dir = folder
	as(initdb)
	if output, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, output)
	}

	for range 5 { // another process may take the port between the choice and the start
		port, err := freePort()
		if err != nil {
			return "", err
		}
		run := exec.Command("/bin/sh", "-c", watcher, "ktms-postgres", binaries, folder, strconv.Itoa(port))
		run.Dir = folder
		as(run)
		input, err := run.StdinPipe()
		if err != nil {
			return "", err
		}
		if err := run.Start(); err != nil {
			return "", err
		}
		address := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
		if err = awaitServer(ctx, address, folder); err == nil {
			serverInput = input
			return address, nil
		}
		log, _ := os.ReadFile(filepath.Join(folder, "log"))
		if !bytes.Contains(log, []byte("Address already in use")) {
			input.Close()
			_ = run.Wait() // the watcher removes the folder
			return "", fmt.Errorf("the server does not answer: %w\n%s", err, log)
		}
		// The watcher must not remove the folder, so that the next one can use it.
		_ = run.Process.Kill()
		input.Close()
		_ = run.Wait()
	}
	return "", errors.New("no port stays free")
}

// awaitServer waits until the server answers whose data is in the folder, and not another one on the same port.
func awaitServer(ctx context.Context, address, folder string) error {
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		data, err := askFolder(ctx, address)
		if err == nil && data == filepath.Join(folder, "data") {
			return nil
		}
		log, _ := os.ReadFile(filepath.Join(folder, "log"))
		if bytes.Contains(log, []byte("FATAL:  could not")) {
			return errors.New("it ended")
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func askFolder(ctx context.Context, address string) (folder string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SHOW data_directory`).Scan(&folder)
	return folder, err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// newestBinaries is the folder with the newest postgres and initdb on this machine. Debian keeps them off the PATH.
func newestBinaries() (string, error) {
	var folders []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		// A link may lead to one of the two alone; the other lies where it points to.
		if target, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres")); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		folders = append(folders, found...)
	}
	var newest string
	var newestVersion float64
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
			continue
		}
		if version := binaryVersion(folder); version > newestVersion {
			newest, newestVersion = folder, version
		}
	}
	if newest == "" {
		return "", errors.New("there are no Postgres binaries on this machine: install them (Debian and Ubuntu: " +
			"apt-get install postgresql; macOS: brew install postgresql; Fedora: dnf install postgresql-server), or set " +
			DatabaseURL + " to a server whose user may create databases")
	}
	return newest, nil
}

// binaryVersion reads "postgres (PostgreSQL) 15.8 (Debian …)"; 0 when it cannot.
func binaryVersion(folder string) float64 {
	output, err := exec.Command(filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(output), "(PostgreSQL) ")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	version, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return version
}
