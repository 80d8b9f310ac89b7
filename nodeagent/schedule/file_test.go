package schedule

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// noon is a level's only time in these tests.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func write(t *testing.T, path, text string) {
	t.Helper()
	// As editors do it: the new file replaces the old one.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// TestFile follows a file through edits, mistakes and its removal.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		f := Follow(path, slog.New(slog.NewTextHandler(&log, nil)))
		go f.Run(t.Context())
		want := func(level int, said string) {
			t.Helper()
			if got := f.Current().Level(noon); got != level {
				t.Errorf("level %d, want %d", got, level)
			}
			if text := log.take(); !strings.Contains(text, said) || (said == "" && text != "") {
				t.Errorf("log %q, want %q", text, said)
			}
		}
		look := func() {
			time.Sleep(lookInterval)
			synctest.Wait()
		}
		want(100, "there is no schedule file")
		look()
		want(100, "")
		write(t, path, "10:00-14:00 0")
		look()
		want(0, "schedule read")
		write(t, path, "10:00-14:00 o")
		look()
		want(0, "the last valid schedule stays")
		time.Sleep(2 * readInterval)
		synctest.Wait()
		want(0, "") // said once
		write(t, path, "10:00-14:00 30")
		look()
		want(30, "schedule read")

		write(t, path, "10:00-14:00 29")
		look()
		want(29, "schedule read")
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		look()
		want(29, "")
		look()
		want(100, "schedule read") // an empty file has no rules
		write(t, path, "10:00-14:00 30")
		look()
		want(30, "schedule read")

		// A change that leaves the size and the time as they were is found by reading.
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("10:00-14:00 31"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
			t.Fatal(err)
		}
		look()
		want(30, "")
		time.Sleep(readInterval)
		synctest.Wait()
		want(31, "schedule read")

		// A file that is away for a moment is being replaced.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		look()
		want(31, "")
		look()
		want(100, "there is no schedule file")
		if err := os.WriteFile(path, bytes.Repeat([]byte("#"), maxFile+1), 0o600); err != nil {
			t.Fatal(err)
		}
		look()
		want(100, "the node runs at 100%")
	})
}

// zoneOf is a zone file of one offset from UTC.
func zoneOf(offset time.Duration) string {
	var b bytes.Buffer
	b.WriteString("TZif")
	b.Write(make([]byte, 16))
	// The numbers of indicators, leap seconds and switches are 0; there is one type, and its name has four bytes.
	for _, count := range []uint32{0, 0, 0, 0, 1, 4} {
		b.Write(binary.BigEndian.AppendUint32(nil, count))
	}
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(int32(offset.Seconds()))))
	b.Write([]byte{0, 0})
	b.WriteString("AAA\x00")
	return b.String()
}

// TestTravel goes by the clock of the place where the machine is now.
func TestTravel(t *testing.T) {
	t.Parallel()
	path, place := filepath.Join(t.TempDir(), "schedule"), filepath.Join(t.TempDir(), "localtime")
	write(t, path, "12:00-13:00 0")
	write(t, place, zoneOf(0))
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		f := follow(path, place, slog.New(slog.NewTextHandler(&log, nil)))
		go f.Run(t.Context())
		log.take()
		at := noon.Add(30 * time.Minute)
		if got := f.Current().Level(at); got != 0 {
			t.Errorf("at home: %d", got)
		}
		write(t, place, zoneOf(-5*time.Hour))
		time.Sleep(2 * readInterval)
		synctest.Wait()
		if got := f.Current().Level(at); got != 100 {
			t.Errorf("abroad at home's noon: %d", got)
		}
		if got := f.Current().Level(at.Add(5 * time.Hour)); got != 0 {
			t.Errorf("abroad at noon: %d", got)
		}
		if got := f.Current().Describe(at.Add(5 * time.Hour)); got != "now 0%, next 13:00 100%" {
			t.Errorf("described as %q", got)
		}
		if text := log.take(); strings.Count(text, "schedule read") != 1 {
			t.Errorf("log %q, want one line", text)
		}
		write(t, place, "nonsense")
		time.Sleep(2 * readInterval)
		synctest.Wait()
		if got := f.Current().Level(at); got != 0 { // by the time's own zone
			t.Errorf("nowhere: %d", got)
		}
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "schedule")
	if _, err := Read(path); err == nil {
		t.Error("a missing file is valid")
	}
	write(t, path, "nonsense")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v does not name the file and the line", err)
	}
}
