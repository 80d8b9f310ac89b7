package storetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
)

func ask(address, question string) (answer string, err error) {
	conn, err := pgx.Connect(context.Background(), address)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(context.Background(), question).Scan(&answer)
	return answer, err
}

func TestPostgresDatabasesAreFreshAndDropped(t *testing.T) {
	const countTables = `SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'`
	var dropped string
	t.Run("one test", func(t *testing.T) {
		first, second := Postgres(t), Postgres(t)
		if err := execute(first, `CREATE TABLE a (id INTEGER)`); err != nil {
			t.Fatal(err)
		}
		if tables, err := ask(second, countTables); err != nil || tables != "0" {
			t.Errorf("the second database has %s tables, %v", tables, err)
		}
		// It is dropped although somebody is still connected.
		conn, err := pgx.Connect(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		dropped = first
	})
	if _, err := ask(dropped, countTables); err == nil {
		t.Error("the database outlived its test")
	}
}

func TestPostgresOnANamedServer(t *testing.T) {
	named := Postgres(t)
	t.Setenv(DatabaseURL, named)
	own := Postgres(t)
	if own == named {
		t.Errorf("the test got the named database itself: %s", own)
	}
	if name, err := ask(own, `SELECT current_database()`); err != nil || withDatabase(named, name) != own {
		t.Errorf("connected to %s, %v; want %s", name, err, own)
	}
}

func TestWithDatabase(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p%40@h:5/old?sslmode=disable": "postgres://u:p%40@h:5/new?sslmode=disable",
		"postgresql://h":      "postgresql://h/new",
		"host=h dbname=old":   "host=h dbname=old dbname=new",
		"host=/run user=anna": "host=/run user=anna dbname=new",
	} {
		got := withDatabase(address, "new")
		if got != want {
			t.Errorf("%s becomes %s, want %s", address, got, want)
		}
		if config, err := pgx.ParseConfig(got); err != nil || config.Database != "new" {
			t.Errorf("%s connects to %v, %v", got, config, err)
		}
	}
}

// childOf names the variable that turns this test binary into the process that is killed.
const childOf = "KTMS_TEST_SERVER_CHILD"

// TestServerEndsWithItsProcess kills a process like this one, which has no time to clean up.
func TestServerEndsWithItsProcess(t *testing.T) {
	if os.Getenv(childOf) != "" {
		address, err := server()
		fmt.Println(address, err)
		select {} // until it is killed
	}
	if _, err := newestBinaries(); err != nil && os.Getenv(DatabaseURL) != "" {
		return // this machine starts no servers
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childOf+"=1")
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	var address, started string
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fmt.Sscan(line, &address, &started)
	if started != "<nil>" {
		t.Fatal(line)
	}
	data, err := ask(address, `SHOW data_directory`)
	if err != nil {
		t.Fatal(err)
	}

	child.Process.Kill()
	child.Wait()
	Eventually(t, patience, "the server and its folder are gone", func() bool {
		_, err := ask(address, `SHOW data_directory`)
		_, gone := os.Stat(data)
		return err != nil && os.IsNotExist(gone)
	})
}
