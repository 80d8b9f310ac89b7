package installtest

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// standIns are the programs that this test's own can be, by their names.
var standIns = map[string]func(state string, args []string) error{
	"systemctl": systemctl, "launchctl": launchctl, "ollama": ollama,
	"loginctl": nothing, "systemd-inhibit": untilStopped, "caffeinate": untilStopped,
	"uname": uname, "sysctl": constant("1"), "file": file, "zstd": unpack,
}

func nothing(string, []string) error { return nil }

func constant(text string) func(string, []string) error {
	return func(string, []string) error {
		_, err := fmt.Println(text)
		return err
	}
}

// uname is that of an Intel Linux machine, or of a Mac whose shell runs through Rosetta.
func uname(_ string, args []string) error {
	if args[0] == "-m" {
		return constant("x86_64")("", nil)
	}
	return constant(os.Getenv(osVariable))("", nil)
}

// file tells an Intel program by its text.
func file(_ string, args []string) error {
	text, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		return err
	}
	kind := "Mach-O 64-bit executable arm64"
	if strings.Contains(string(text), "intel build") {
		kind = "Mach-O 64-bit executable x86_64"
	}
	return constant(kind)("", nil)
}

// unpack stands in for zstd -dc on an archive that is not packed at all.
func unpack(_ string, args []string) error {
	in, err := os.Open(args[len(args)-1])
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(os.Stdout, in)
	return err
}

func untilStopped(string, []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return nil
}

// ollama is a client, or the server that keeps its models in the state folder.
func ollama(state string, args []string) error {
	pulled := filepath.Join(state, "models")
	switch args[0] {
	case "--version":
		return constant("ollama version is 0.0.0")("", nil)
	case "pull":
		resp, err := http.Get("http://" + os.Getenv("OLLAMA_HOST") + "/api/version")
		if err != nil {
			return err // nobody is there to pull into
		}
		resp.Body.Close()
		if strings.HasPrefix(args[1], "missing") {
			return errors.New("pull model manifest: file does not exist")
		}
		return os.WriteFile(pulled, []byte(args[1]), 0o600)
	case "show":
		text, err := os.ReadFile(pulled)
		if err == nil && string(text) != args[1] {
			err = errors.New("model not found")
		}
		return err
	case "serve":
		return serveOllama(state, pulled)
	}
	return fmt.Errorf("no command %q", args[0])
}

func serveOllama(state, pulled string) error {
	models := func(w http.ResponseWriter, _ *http.Request) {
		text, err := os.ReadFile(pulled)
		if err != nil {
			text = []byte("none")
		}
		fmt.Fprintf(w, `{"models":[{"name":%q,"model":%q,"digest":"1","size":5,"size_vram":5,"context_length":4096}]}`, text, text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"version":"0.0.0"}`) })
	mux.HandleFunc("GET /api/tags", models)
	mux.HandleFunc("GET /api/ps", models)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":[]}`) })
	mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) })
	mux.HandleFunc("POST /api/generate", func(w http.ResponseWriter, r *http.Request) {
		var load struct {
			Model string `json:"model"`
			Keep  any    `json:"keep_alive"`
		}
		if err := json.NewDecoder(r.Body).Decode(&load); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		note(state, "load", fmt.Sprint(load.Model, " ", load.Keep))
		io.WriteString(w, `{"done":true}`)
	})
	return http.ListenAndServe(os.Getenv("OLLAMA_HOST"), mux)
}

// start runs a service as a process of its own.
func start(state, service, log string, env, words []string) error {
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, service+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// stop ends a service as its manager does, and returns when it has ended.
func stop(state, service string) error {
	pid := runningPid(state, service)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not stop", service)
		}
	}
	return nil
}

// systemctl is systemd's user manager. It reads unit files as strictly as the installer needs them.
func systemctl(state string, args []string) error {
	var words []string
	for _, a := range args {
		if !strings.HasPrefix(a, "--") && a != "MainPID" {
			words = append(words, a)
		}
	}
	service := words[len(words)-1]
	units := filepath.Join(os.Getenv("HOME"), ".config/systemd/user")
	switch words[0] {
	case "show-environment", "daemon-reload", "enable":
		return nil
	case "disable":
		return stop(state, service)
	case "show":
		return constant(strconv.Itoa(runningPid(state, service)))("", nil)
	case "is-active":
		if runningPid(state, service) == 0 {
			return errors.New("inactive")
		}
		return nil
	case "restart":
		if err := stop(state, service); err != nil {
			return err
		}
		log, env, program, err := readUnit(filepath.Join(units, service))
		if err != nil {
			return err
		}
		return start(state, service, log, env, program)
	}
	return fmt.Errorf("no command %q", args)
}

var quotedWord = regexp.MustCompile(`"([^"]*)"`)

func readUnit(path string) (log string, env, program []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, nil, err
	}
	quoted := func(value string) (words []string) {
		for _, w := range quotedWord.FindAllStringSubmatch(value, -1) {
			words = append(words, w[1])
		}
		return words
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ExecStart":
			program = quoted(value)
		case "Environment":
			env = append(env, quoted(value)...)
		case "StandardError":
			log = strings.TrimPrefix(value, "append:")
		}
	}
	if len(program) == 0 {
		return "", nil, nil, fmt.Errorf("%s starts nothing", path)
	}
	return log, env, program, nil
}

// launchctl is launchd. It refuses to take a service twice, as the real one does.
func launchctl(state string, args []string) error {
	loaded := func(service string) string { return filepath.Join(state, service+".loaded") }
	service := strings.TrimSuffix(filepath.Base(args[len(args)-1]), ".plist")
	switch args[0] {
	case "enable":
		return nil
	case "bootstrap":
		if _, err := os.Stat(loaded(service)); err == nil {
			return errors.New("Bootstrap failed: 5: Input/output error")
		}
		log, env, program, err := readPlist(args[len(args)-1])
		if err != nil {
			return err
		}
		if err := os.WriteFile(loaded(service), nil, 0o600); err != nil {
			return err
		}
		return start(state, service, log, env, program)
	case "bootout":
		if err := os.Remove(loaded(service)); err != nil {
			return errors.New("Boot-out failed: 3: No such process")
		}
		return stop(state, service)
	case "print":
		if _, err := os.Stat(loaded(service)); err != nil {
			return errors.New("could not find the service")
		}
		text := "\tstate = not running\n"
		if pid := runningPid(state, service); pid != 0 {
			text = fmt.Sprintf("\tstate = running\n\tpid = %d\n", pid)
		}
		return constant(text)("", nil)
	}
	return fmt.Errorf("no command %q", args)
}

// readPlist reads a property list as the XML that it is.
func readPlist(path string) (log string, env, program []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, nil, err
	}
	key, name := "", ""
	for d, inside := xml.NewDecoder(strings.NewReader(string(text))), ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", nil, nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local
		case xml.EndElement:
			inside = ""
		case xml.CharData:
			value := string(token)
			switch {
			case inside == "key" && key == "EnvironmentVariables" && strings.HasPrefix(value, "OLLAMA_"):
				name = value
			case inside == "key":
				key = value
			case inside == "string" && key == "ProgramArguments":
				program = append(program, value)
			case inside == "string" && key == "EnvironmentVariables":
				env = append(env, name+"="+value)
			case inside == "string" && key == "StandardErrorPath":
				log = value
			}
		}
	}
	return log, env, program, nil
}
