package schedule

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// lookInterval is how often the file is looked at for a change.
	lookInterval = time.Second
	// readInterval is how often it is read anyway: not every file system tells of a change.
	readInterval = 30 * time.Second
	// maxFile bounds the file: a rule for every minute of a week would fit.
	maxFile = 1 << 20
)

// Read reads a file of rules.
func Read(path string) (*Schedule, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: is it a schedule?", path, maxFile)
	}
	return string(text), err
}

// File follows a file of rules. It is safe for concurrent use.
type File struct {
	path string
	// zoneFile says where the machine is; empty if that is fixed.
	zoneFile string
	log      *slog.Logger

	mu      sync.Mutex
	current *Schedule
	// said is the last thing that was logged about the file, which is said once.
	said string
	// seen is what the file looked like when it was read; nil where there was none.
	seen   os.FileInfo
	readAt time.Time
	// missed counts the looks in a row at which there was no file, or an empty one.
	missed int
}

// Follow reads the file for the first time. Without the file, or with a wrong one, the level is 100 %.
func Follow(path string, log *slog.Logger) *File {
	return follow(path, zoneFile(), log)
}

func follow(path, zoneFile string, log *slog.Logger) *File {
	f := &File{path: path, zoneFile: zoneFile, log: log, missed: 1}
	f.look()
	return f
}

// Run follows the file until ctx ends.
func (f *File) Run(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look()
		}
	}
}

// Current is the last valid schedule; nil without one.
func (f *File) Current() *Schedule {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// look reads the file if it changed, or was not read for a while.
func (f *File) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if same(info, f.seen) && !f.readAt.IsZero() && time.Since(f.readAt) < readInterval {
		return
	}
	if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() == 0) {
		// Editors remove or empty a file before they write it. What is so twice in a row is meant.
		if f.missed++; f.missed < 2 {
			return
		}
	} else {
		f.missed = 0
	}
	f.seen, f.readAt = info, time.Now()
	f.read()
}

// same reports whether a file was neither changed nor replaced.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

func (f *File) read() {
	s, err := Read(f.path)
	switch {
	case err == nil:
		z := readZone(f.zoneFile)
		s.zone, f.current = z.location, s
		now := time.Now()
		f.say(slog.LevelInfo, fmt.Sprintf("valid %x %x", sha256.Sum256(s.levels[:]), z.sum), "schedule read", "file", f.path, "schedule", s.Describe(now))
	case errors.Is(err, fs.ErrNotExist):
		f.current = nil
		f.say(slog.LevelWarn, "gone", "there is no schedule file, so the node runs at 100%", "file", f.path)
	default:
		kept := "the last valid schedule stays"
		if f.current == nil {
			kept = "the node runs at 100%"
		}
		f.say(slog.LevelError, err.Error(), "the schedule is not valid, so "+kept, "error", err.Error())
	}
}

// say logs a thing once.
func (f *File) say(level slog.Level, key, message string, args ...any) {
	if f.said == key {
		return
	}
	f.said = key
	f.log.Log(context.Background(), level, message, args...)
}
