package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of CPU time in /proc, the same on every Linux that Go supports.
const ticksPerSecond = 100

// cpuSeconds is the CPU time that a process has used, in user and kernel mode.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field, in brackets, may hold blanks; utime and stime are the 12th and 13th after it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	kernel, _ := strconv.ParseFloat(fields[12], 64)
	return (user + kernel) / ticksPerSecond
}

// A process's memory in MiB: anonymous is what it allocated and what containers are charged for, resident counts the
// pages of the binary too, peak is the highest resident.
func anonymous(pid int) float64 { return statusMiB(pid, "RssAnon:") }
func resident(pid int) float64  { return statusMiB(pid, "VmRSS:") }
func peak(pid int) float64      { return statusMiB(pid, "VmHWM:") }

func statusMiB(pid int, name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
