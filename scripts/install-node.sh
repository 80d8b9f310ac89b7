#!/bin/sh
# Lends this machine's GPU to a Keystone gateway: Ollama, a model and the node agent as background services.
#
#   curl -fsSL https://raw.githubusercontent.com/ai-process/ktms/vX.Y.Z/scripts/install-node.sh | sh -s -- \
#     --proxy proxy.example.com --node-id anna-mac --model gemma4:26b-a4b-it-qat
#
# It is piped into a shell, so everything is a function and the last line calls the first: a download that is cut runs
# nothing. It is one file for the same reason.
set -eu

# pins names what is downloaded: versions, and the SHA-256 of every file. "scripts/release-node VERSION" writes the
# block anew when a release is made. A file without a sum is refused, never downloaded unchecked.
pins() {
	cat <<'END_OF_PINS'
version ktms -
version ollama 0.32.7
version cloudflared 2026.9.3
END_OF_PINS
}

usage() {
	cat <<'END_OF_USAGE'
usage: install-node.sh --proxy HOST[:PORT] --node-id ID --model MODEL [options]

Downloads Ollama, the model and the node agent, starts them as background services of this user, keeps the machine
awake, and waits until the node is registered. Run it again to update: only what changed is restarted, and an agent
that does not start is rolled back. The node key is asked for, hidden, the first time.

needed, except by --uninstall:
  --proxy HOST[:PORT]   the gateway's address. Without a port, or with 443, it is dialled over TLS; http:// and
                        https:// in front say which
  --node-id ID          the id that the node key was minted for
  --model MODEL         the Ollama tag to serve; repeat it for several. No other model is reported

options:
  --max-concurrency N   how many requests the machine takes at once (default 1)
  --schedule FILE       load levels by local time. The file is checked and copied to ~/.ktms-node/schedule; edit that
                        one later, no re-run needed
  --tls                 dial the gateway over TLS on another port than 443, too
  --endpoint URL        where the gateway reaches Ollama by itself. Without it the agent opens a Cloudflare quick tunnel
  --new-key             ask for a new node key
  --keep-legacy         leave ~/.llm-proxy-node of the time before the rename in place. Its services go all the same,
                        or two nodes would share one id and one port

instead of installing:
  --doctor              say in plain words what keeps the node from serving; exits 1 on a problem
  --dry-run             say what would be done, and change nothing
  --uninstall           remove the services and ~/.ktms-node, and the old services. Models stay in ~/.ollama
  --purge-backups       with --uninstall: remove ~/.ktms-node.backup, too
  --help                this text

environment:
  NODE_KEY              the node key, where nobody is there to type it
  KTMS_OLLAMA_ADDR      where the node's Ollama listens (default 127.0.0.1:11435)
  KTMS_WAIT             how many seconds to wait for the registration (default 180)
  KTMS_RELEASES, KTMS_OLLAMA_RELEASES, KTMS_CLOUDFLARED_RELEASES
                        mirrors of the three download pages; the checksums stay the same

Logs are in ~/.ktms-node/logs.
END_OF_USAGE
}

# --- saying things ----------------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }
note() { printf 'note: %s\n' "$*" >&2; }
die() {
	printf 'install-node.sh: %s\n' "$*" >&2
	exit 1
}

# plan does something, or with --dry-run only says so: plan "WHAT" COMMAND...
plan() {
	if [ -n "$dry_run" ]; then
		say "would $1"
		return 0
	fi
	shift
	"$@"
}

# ask asks a yes-or-no question at the terminal, since the script itself is the standard input. Nobody there means no.
ask() {
	has_terminal || return 1
	printf '%s [y/N] ' "$1" >/dev/tty
	read -r answer </dev/tty || return 1
	case $answer in [yY]*) return 0 ;; esac
	return 1
}

has_terminal() { (: </dev/tty) 2>/dev/null; }

# --- the command line -------------------------------------------------------------------------------------------------

main() {
	proxy='' node_id='' models='' concurrency=1 schedule='' tls='' endpoint=''
	action=install dry_run='' new_key='' keep_legacy='' purge_backups=''
	parse "$@"
	where
	case $action in
	install) install_node ;;
	doctor) doctor ;;
	uninstall) uninstall ;;
	esac
}

parse() {
	while [ $# -gt 0 ]; do
		option=$1
		shift
		case $option in
		--help | -h) usage && exit 0 ;;
		--doctor) action=doctor ;;
		--uninstall) action=uninstall ;;
		--dry-run) dry_run=1 ;;
		--new-key) new_key=1 ;;
		--keep-legacy) keep_legacy=1 ;;
		--purge-backups) purge_backups=1 ;;
		--tls) tls=1 ;;
		--proxy=* | --node-id=* | --model=* | --max-concurrency=* | --schedule=* | --endpoint=*)
			set_option "${option%%=*}" "${option#*=}"
			;;
		--proxy | --node-id | --model | --max-concurrency | --schedule | --endpoint)
			[ $# -gt 0 ] || die "$option wants a value: see --help"
			set_option "$option" "$1"
			shift
			;;
		# What is not known is not repeated: it may be a key.
		*key* | *ktms_node_* | *llm_node_*) die "a node key on the command line can be read by every user of this machine: leave it out, it is asked for" ;;
		-*) die "there is no option ${option%%=*}: see --help" ;;
		*) die "an argument is no option: see --help" ;;
		esac
	done
	check_options
}

set_option() {
	[ -n "$2" ] || die "$1 is empty: see --help"
	case $2 in
	ktms_node_* | llm_node_*) die "a node key on the command line can be read by every user of this machine: leave it out, it is asked for" ;;
	esac
	case $1 in
	--proxy) proxy=$2 ;;
	--node-id) node_id=$2 ;;
	--model) models="$models${models:+ }$2" ;;
	--max-concurrency) concurrency=$2 ;;
	--schedule) schedule=$2 ;;
	--endpoint) endpoint=$2 ;;
	esac
}

# check_options says everything that is wrong at once. What it lets pass needs no quoting in a unit, a plist or JSON.
check_options() {
	wrong=''
	if [ "$action" != uninstall ]; then
		[ -n "$proxy" ] || wrong="$wrong
  --proxy is missing: the address of the gateway, like proxy.example.com"
		[ -n "$node_id" ] || wrong="$wrong
  --node-id is missing: the id that the node key was minted for"
		[ -n "$models" ] || wrong="$wrong
  --model is missing: the Ollama tag to serve, like gemma4:26b-a4b-it-qat"
	fi
	case $proxy in *[!][A-Za-z0-9._:/-]*) wrong="$wrong
  --proxy has a character that no address has: write it like proxy.example.com:443" ;; esac
	case $node_id in *[!A-Za-z0-9._-]*) wrong="$wrong
  --node-id may have letters, digits, dots, dashes and underscores" ;; esac
	case $models in *[!A-Za-z0-9._:/\ -]*) wrong="$wrong
  --model has a character that no Ollama tag has" ;; esac
	case $concurrency in '' | 0* | *[!0-9]* | ??????*) wrong="$wrong
  --max-concurrency must be a number from 1 to 99999" ;; esac
	case $endpoint in
	*[!][A-Za-z0-9._:/-]*) wrong="$wrong
  --endpoint has a character that no URL of an engine has" ;;
	'' | http://* | https://*) ;;
	*) wrong="$wrong
  --endpoint is no URL: write it like http://10.10.0.15:11435" ;;
	esac
	if [ -n "$schedule" ] && [ ! -r "$schedule" ]; then
		wrong="$wrong
  --schedule: $schedule cannot be read"
	fi
	if [ -n "$purge_backups" ] && [ "$action" != uninstall ]; then
		wrong="$wrong
  --purge-backups goes with --uninstall"
	fi
	[ -z "$wrong" ] || die "this cannot be right:$wrong"
}

# where names the places on this machine.
where() {
	[ -d "${HOME:-}" ] || die "HOME is not set to a folder"
	# systemd and launchd read these paths by rules of their own, and a name that needs quoting differs between them.
	case $HOME in *[!A-Za-z0-9._/@+\ -]*) die "the path of the home folder, $HOME, has a character that service files cannot hold" ;; esac
	home=$HOME/.ktms-node
	legacy=$HOME/.llm-proxy-node
	backups=$HOME/.ktms-node.backup
	logs=$home/logs
	wait_seconds=${KTMS_WAIT:-180}
	start_seconds=120 # the programs may come from a slow disk
	stop_seconds=660 # the agent gives the requests that are running ten minutes
	ollama_addr=${KTMS_OLLAMA_ADDR:-127.0.0.1:11435}
	ollama_port=${ollama_addr##*:}
	case $ollama_addr in
	:* | *: | *[!][A-Za-z0-9.:-]* | "$ollama_port") die "KTMS_OLLAMA_ADDR is $ollama_addr: write it like 127.0.0.1:11435" ;;
	esac
	case $ollama_port in *[!0-9]*) die "KTMS_OLLAMA_ADDR is $ollama_addr: its port is no number" ;; esac
	# An Ollama that listens everywhere is asked on loopback.
	case $ollama_addr in
	0.0.0.0:* | '[::]:'*) ollama_url=http://127.0.0.1:$ollama_port ;;
	*) ollama_url=http://$ollama_addr ;;
	esac
	where_proxy
	case $(uname -s) in
	Linux) os=linux units=$HOME/.config/systemd/user prefix=ktms- suffix=.service legacy_prefix=llm-proxy- ;;
	Darwin) os=darwin units=$HOME/Library/LaunchAgents prefix=com.ktms. suffix=.plist legacy_prefix=com.llm-proxy. ;;
	*) die "this system is neither Linux nor macOS" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) die "there is no agent for the processor $(uname -m)" ;;
	esac
	# A shell under Rosetta takes an Apple Silicon Mac for an Intel one.
	if [ $os = darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then
		arch=arm64
	fi
}

# where_proxy decides on TLS: a scheme says it, port 443 or none means it, and else --tls does.
where_proxy() {
	case $proxy in
	https://*) tls=1 ;;
	http://*) tls='' ;;
	\[*\]:443 | \[*\]) tls=1 ;;
	\[*\]:*) ;;
	*:443) tls=1 ;;
	*:*) ;;
	*) tls=1 ;;
	esac
}

# --- services ---------------------------------------------------------------------------------------------------------
# A service is ollama, node or awake. systemd calls it ktms-NAME.service, launchd com.ktms.NAME.

unit_file() { printf '%s/%s%s%s' "$units" "$prefix" "$1" "$suffix"; }

launchd_domain() { printf 'gui/%s' "$(id -u)"; }

check_services() {
	if [ $os = darwin ]; then
		command -v launchctl >/dev/null || die "launchctl is missing: this is no complete macOS"
		return 0
	fi
	# A shell that came by sudo or su often lacks the variable by which systemctl finds the user's manager.
	if [ -z "${XDG_RUNTIME_DIR:-}" ] && [ -d "/run/user/$(id -u)" ]; then
		XDG_RUNTIME_DIR=/run/user/$(id -u)
		export XDG_RUNTIME_DIR
	fi
	systemctl --user show-environment >/dev/null 2>&1 ||
		die "systemd does not run services of this user: log in normally (not by su or sudo) and try again"
	if [ -n "${SUDO_USER:-}" ]; then
		note "this installs for $(id -un), not for $SUDO_USER: without sudo it installs for you"
	fi
}

# service_text prints the file of a service: service_text NAME PAUSE PROGRAM ARGUMENTS...
# PAUSE is the number of seconds before it is started again. $service_env holds NAME=VALUE words for its environment.
service_text() {
	name=$1 pause=$2 log=$logs/$1.log
	shift 2
	if [ $os = linux ]; then
		printf '[Unit]\nDescription=Keystone node: %s\n\n[Service]\nExecStart=' "$name"
		for word in "$@"; do
			printf '"%s" ' "$word"
		done
		printf '\n'
		for word in $service_env; do
			printf 'Environment="%s"\n' "$word"
		done
		# Only the program itself is told to stop: the agent still needs its tunnel while it drains.
		printf 'StandardOutput=append:%s\nStandardError=append:%s\n' "$log" "$log"
		printf 'Restart=always\nRestartSec=%s\nKillMode=mixed\nTimeoutStopSec=%s\n' "$pause" "$stop_seconds"
		printf '\n[Install]\nWantedBy=default.target\n'
		return 0
	fi
	cat <<-END
		<?xml version="1.0" encoding="UTF-8"?>
		<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
		<plist version="1.0">
		<dict>
		<key>Label</key><string>$prefix$name</string>
		<key>ProgramArguments</key>
		<array>
	END
	for word in "$@"; do
		printf '<string>%s</string>\n' "$word"
	done
	printf '</array>\n<key>EnvironmentVariables</key>\n<dict>\n'
	for word in $service_env; do
		printf '<key>%s</key><string>%s</string>\n' "${word%%=*}" "${word#*=}"
	done
	cat <<-END
		</dict>
		<key>RunAtLoad</key><true/>
		<key>KeepAlive</key><true/>
		<key>ThrottleInterval</key><integer>$pause</integer>
		<key>ExitTimeOut</key><integer>$stop_seconds</integer>
		<key>StandardOutPath</key><string>$log</string>
		<key>StandardErrorPath</key><string>$log</string>
		</dict>
		</plist>
	END
}

# service_runs says whether a service runs now: service_runs FILE_NAME_WITHOUT_SUFFIX
service_runs() {
	if [ $os = linux ]; then
		systemctl --user --quiet is-active "$1$suffix" 2>/dev/null
	else
		launchctl print "$(launchd_domain)/$1" 2>/dev/null | grep -q 'state = running'
	fi
}

# service_start starts a service, or starts it again. The old one may take its time to drain.
service_start() {
	rotate "$logs/$1.log"
	if [ $os = linux ]; then
		systemctl --user daemon-reload
		systemctl --user --quiet enable "$prefix$1$suffix" || true
		systemctl --user restart "$prefix$1$suffix"
		return
	fi
	service_stop "$prefix$1"
	launchctl enable "$(launchd_domain)/$prefix$1" 2>/dev/null || true
	launchctl bootstrap "$(launchd_domain)" "$(unit_file "$1")"
}

# still_starting waits a second for a service that does not answer yet, up to $left times. It gives up early on one that
# is found ended again and again, which $down counts.
still_starting() {
	if service_runs "$prefix$1"; then down=0; else down=$((down + 1)); fi
	left=$((left - 1))
	[ "$left" -gt 0 ] && [ "$down" -lt 4 ] || return 1
	sleep 1
}

# service_pid prints the process of a service, if it has one: service_pid FILE_NAME_WITHOUT_SUFFIX
service_pid() {
	if [ $os = linux ]; then
		systemctl --user show --property MainPID --value "$1$suffix" 2>/dev/null | sed '/^0$/d'
	else
		launchctl print "$(launchd_domain)/$1" 2>/dev/null | sed -n 's/^[[:space:]]*pid = //p' | head -n 1
	fi
}

# service_stop stops a service for good, and returns when it is gone: service_stop FILE_NAME_WITHOUT_SUFFIX
service_stop() {
	if [ $os = linux ]; then
		systemctl --user --quiet disable --now "$1$suffix" 2>/dev/null || true
		return 0
	fi
	launchctl bootout "$(launchd_domain)/$1" 2>/dev/null || true
	left=$stop_seconds
	while launchctl print "$(launchd_domain)/$1" >/dev/null 2>&1 && [ "$left" -gt 0 ]; do
		sleep 1
		left=$((left - 1))
	done
}

# rotate keeps a log from growing over the years: it holds 10 MiB and its predecessor as much as there was.
rotate() {
	if [ -f "$1" ] && [ "$(wc -c <"$1")" -gt 10485760 ]; then
		mv -f "$1" "$1.old"
	fi
}

# --- downloads --------------------------------------------------------------------------------------------------------

version_of() { pins | awk -v name="$1" '$1 == "version" && $2 == name { print $3 }'; }
sum_of() { pins | awk -v name="$1" '$2 == name && $1 != "version" { print $1 }'; }

sha256() {
	if command -v sha256sum >/dev/null; then
		sha256sum "$1" | cut -d ' ' -f 1
	else
		shasum -a 256 "$1" | cut -d ' ' -f 1
	fi
}

# names sets the files to download, and their sums.
names() {
	agent_file=ktms-node-$os-$arch
	agent_url=${KTMS_RELEASES:-https://github.com/ai-process/ktms/releases/download}/$(version_of ktms)/$agent_file
	tunnel_file=cloudflared-$os-$arch ollama_file=ollama-$os-$arch.tar.zst
	if [ $os = darwin ]; then
		tunnel_file=$tunnel_file.tgz ollama_file=ollama-darwin.tgz
	fi
	tunnel_url=${KTMS_CLOUDFLARED_RELEASES:-https://github.com/cloudflare/cloudflared/releases/download}/$(version_of cloudflared)/$tunnel_file
	ollama_file_url=${KTMS_OLLAMA_RELEASES:-https://github.com/ollama/ollama/releases/download}/v$(version_of ollama)/$ollama_file
	agent_sum=$(sum_of "$agent_file") tunnel_sum=$(sum_of "$tunnel_file") ollama_sum=$(sum_of "$ollama_file")
	for file in "$agent_file:$agent_sum" "$tunnel_file:$tunnel_sum" "$ollama_file:$ollama_sum"; do
		[ -n "${file#*:}" ] ||
			die "this copy has no checksum for ${file%%:*}, since it belongs to no release: take scripts/install-node.sh of a release (vX.Y.Z in its address)"
	done
}

# current says whether a part is installed just as it is pinned: current NAME SUM PROGRAM
current() { [ -x "$3" ] && [ "$(cat "$home/installed/$1" 2>/dev/null)" = "$2" ]; }

# download fetches a file into the stage and checks it: download URL FILE SUM
download() {
	say "downloading $1"
	quiet=-sS
	if [ -t 2 ]; then quiet=--progress-bar; fi
	curl -fL "$quiet" --retry 3 --connect-timeout 20 -o "$stage/$2" "$1" ||
		die "the download failed, and nothing was changed: $1"
	[ "$(sha256 "$stage/$2")" = "$3" ] ||
		die "the checksum of $2 is wrong, so the download was cut or is not what was released. Nothing was changed: $1"
}

# runs_here starts a program to see whether it can run at all: a wrong processor or a missing library shows here.
runs_here() {
	"$1" --version >/dev/null 2>"$stage/why" || die "$1 does not run on this machine, and nothing was changed: $(cat "$stage/why")"
}

# open_stage makes the folder for downloads, beside the place where they go, so that moving them is one step.
open_stage() {
	stage=$(mktemp -d "$HOME/.ktms-node.stage.XXXXXX")
	trap close_stage EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

close_stage() {
	rm -rf "$stage"
	if [ -n "${terminal_state:-}" ]; then
		stty "$terminal_state" </dev/tty 2>/dev/null || true
	fi
}

stage_agent() {
	agent=$home/bin/ktms-node agent_changed=''
	if ! current ktms-node "$agent_sum" "$agent"; then
		agent_changed=1
		download "$agent_url" "$agent_file" "$agent_sum"
		agent=$stage/$agent_file
		chmod 755 "$agent"
		runs_here "$agent"
	fi
}

stage_tunnel() {
	tunnel_changed=''
	if [ -n "$endpoint" ] || current cloudflared "$tunnel_sum" "$home/bin/cloudflared"; then
		return 0
	fi
	tunnel_changed=1
	download "$tunnel_url" "$tunnel_file" "$tunnel_sum"
	case $tunnel_file in
	*.tgz) tar -xzf "$stage/$tunnel_file" -C "$stage" cloudflared ;;
	*) mv "$stage/$tunnel_file" "$stage/cloudflared" ;;
	esac
	chmod 755 "$stage/cloudflared"
	runs_here "$stage/cloudflared"
}

# program_in finds Ollama's program in its folder: archives for Linux have bin/ and lib/, those for macOS are flat.
program_in() {
	for found in "$1/bin/ollama" "$1/ollama"; do
		if [ -f "$found" ] && [ -x "$found" ]; then
			printf '%s' "$found"
			return 0
		fi
	done
	return 1
}

# native says whether a program is built for this Mac's own processor. Elsewhere there is but one kind.
native() { [ "$os-$arch" != darwin-arm64 ] || file -b -L "$1" | grep -q arm64; }

stage_ollama() {
	ollama_changed=''
	ollama_old=$(program_in "$home/ollama") || ollama_old=$home/ollama/ollama
	if current ollama "$ollama_sum" "$ollama_old"; then
		return 0
	fi
	ollama_changed=1
	if legacy_ollama; then
		say "taking over $legacy_program"
		copy_legacy_ollama
	else
		download "$ollama_file_url" "$ollama_file" "$ollama_sum"
		mkdir "$stage/ollama"
		case $ollama_file in
		*.zst) zstd -dc "$stage/$ollama_file" | tar -xf - -C "$stage/ollama" ;;
		*) tar -xzf "$stage/$ollama_file" -C "$stage/ollama" ;;
		esac
		rm -f "$stage/$ollama_file"
	fi
	staged=$(program_in "$stage/ollama") || die "$ollama_file has no Ollama in it, and nothing was changed"
	runs_here "$staged"
}

# --- the node key -----------------------------------------------------------------------------------------------------

# key_source decides where the key comes from: environment, kept, legacy or prompt.
key_source() {
	key_from=prompt
	if [ -n "${NODE_KEY:-}" ]; then
		key_from=environment
	elif [ -n "$new_key" ]; then
		:
	elif [ -s "$home/key" ]; then
		owner=$(cat "$home/node-id" 2>/dev/null) || owner=''
		if same_owner "$home"; then key_from=kept; fi
	elif legacy_key; then
		owner=$legacy_id
		if same_owner "$legacy"; then key_from=legacy; fi
	fi
}

# same_owner says whether a stored key is this node's, and asks where it is another's.
same_owner() {
	[ "$owner" != "$node_id" ] || return 0
	if [ -n "$dry_run" ]; then
		say "would ask whether the key in $1, minted for node ${owner:-unknown}, serves for $node_id"
		return 1
	fi
	ask "The key in $1 was minted for node ${owner:-unknown}, not $node_id, so the gateway will likely refuse it. Use it all the same?"
}

# read_key leaves a new key in the stage; none where the stored one stays.
read_key() {
	case $key_from in
	kept) return 0 ;;
	legacy) key=$(cat "$legacy_key_file") ;;
	environment)
		key=$NODE_KEY
		unset NODE_KEY # what is started from here on need not see it
		;;
	prompt)
		has_terminal || die "there is no terminal to ask for the node key at: give it in the environment as NODE_KEY"
		terminal_state=$(stty -g </dev/tty)
		printf 'Node key of %s (hidden): ' "$node_id" >/dev/tty
		stty -echo </dev/tty
		read -r key </dev/tty || key=''
		stty "$terminal_state" </dev/tty
		terminal_state=''
		printf '\n' >/dev/tty
		;;
	esac
	key=$(printf '%s' "$key" | tr -d '[:space:]')
	case $key in
	ktms_node_?* | llm_node_?*) ;;
	*) die "that is no node key: one begins with ktms_node_. Ask whoever runs the gateway for one (MintNodeKey)" ;;
	esac
	(umask 077 && printf '%s\n' "$key" >"$stage/key")
	key=''
	# The key that is there already is no reason to restart the agent.
	if cmp -s "$stage/key" "$home/key" && [ "$(cat "$home/node-id" 2>/dev/null)" = "$node_id" ]; then rm "$stage/key"; fi
}

# --- the node before the rename ---------------------------------------------------------------------------------------

# legacy_units lists the old service files, one a line.
legacy_units() {
	for unit in "$units/$legacy_prefix"*"$suffix"; do
		if [ -f "$unit" ]; then printf '%s\n' "$unit"; fi
	done
}

has_legacy() { [ -d "$legacy" ] || [ -n "$(legacy_units)" ]; }

# legacy_flag prints what an old service gives to a flag of the agent: on the same line, or in a plist in the next string.
legacy_flag() {
	legacy_units | while IFS= read -r unit; do
		tr '\n' ' ' <"$unit" | sed -E 's|</string>[[:space:]]*<string>| |g' |
			sed -nE "s|.*--?$1[\"' =]+([^\"'<> ]+).*|\\1|p"
	done | head -n 1
}

# legacy_key finds the old node's key and whom it is for.
legacy_key() {
	legacy_key_file=$(legacy_flag node-key-file)
	for legacy_key_file in "$legacy_key_file" "$legacy/key" "$legacy/node-key" "$legacy/node_key" "$legacy/node.key"; do
		if [ -n "$legacy_key_file" ] && [ -s "$legacy_key_file" ]; then
			legacy_id=$(legacy_flag node-id)
			if [ -z "$legacy_id" ]; then legacy_id=$(cat "$legacy/node-id" 2>/dev/null) || legacy_id=''; fi
			return 0
		fi
	done
	return 1
}

# legacy_ollama finds an old build that this machine can use.
legacy_ollama() {
	legacy_program=$(program_in "$legacy/ollama" || program_in "$legacy") || return 1
	if ! native "$legacy_program"; then
		note "ignoring $legacy_program: it is an Intel build, which Rosetta would run on the CPU"
		return 1
	fi
	"$legacy_program" --version >/dev/null 2>&1 || return 1
}

# copy_legacy_ollama takes the whole folder of a build, or what belongs to Ollama among the node's other files.
copy_legacy_ollama() {
	case $legacy_program in
	"$legacy/ollama/"*) cp -Rp "$legacy/ollama" "$stage/ollama" ;;
	*)
		mkdir -p "$stage/ollama/bin"
		cp -p "$legacy_program" "$stage/ollama/bin/ollama"
		if [ -d "$legacy/lib/ollama" ]; then
			mkdir "$stage/ollama/lib"
			cp -Rp "$legacy/lib/ollama" "$stage/ollama/lib/ollama"
		fi
		;;
	esac
}

# retire_legacy stops the old services for good and moves what is left of them to a backup. What a second call finds is
# what the first one left.
retire_legacy() {
	has_legacy || return 0
	backup=$backups/$(date +%Y%m%d-%H%M%S)
	legacy_units | while IFS= read -r unit; do
		name=$(basename "$unit" "$suffix")
		plan "stop $name and move its file to $backup" retire_service "$name" "$unit"
	done
	if [ $os = linux ] && [ -z "$dry_run" ]; then
		systemctl --user daemon-reload
	fi
	if [ -d "$legacy" ] && [ -z "$keep_legacy" ]; then
		plan "move $legacy to $backup" move_legacy
	fi
}

retire_service() {
	service_stop "$1"
	open_backup
	mv "$2" "$backup/"
}

move_legacy() {
	open_backup
	mv "$legacy" "$backup/llm-proxy-node"
}

open_backup() { (umask 077 && mkdir -p "$backup"); }

# --- the port ---------------------------------------------------------------------------------------------------------

# listeners prints the ids of the processes that listen on Ollama's address, or everywhere on its port.
listeners() {
	host=${ollama_addr%:*}
	if command -v lsof >/dev/null; then
		lsof -nP -iTCP:"$ollama_port" -sTCP:LISTEN -Fpn 2>/dev/null | sed -n 's/^p//p; s/^n/at /p'
	elif command -v ss >/dev/null; then
		ss -ltnpH "sport = :$ollama_port" 2>/dev/null |
			awk '{ at = $4; while (match($0, /pid=[0-9]+/)) { print substr($0, RSTART + 4, RLENGTH - 4); print "at " at; $0 = substr($0, RSTART + RLENGTH) } }'
	fi | awk -v host="$host" -v port=":$ollama_port" '
		$1 != "at" { pid = $1; next }
		{ at = substr($2, 1, length($2) - length(port)) }
		at == host || at == "*" || at == "0.0.0.0" || at == "[::]" || host == "0.0.0.0" || host == "[::]" || host == "localhost" { print pid }' | sort -u
}

command_of() { ps -o args= -p "$1" 2>/dev/null || tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null || true; }

# own_pids prints the processes of this node's services, and of the old ones'.
own_pids() {
	service_pid "${prefix}ollama"
	legacy_units | while IFS= read -r unit; do service_pid "$(basename "$unit" "$suffix")"; done
}

# check_port refuses an address that another process listens on, since the model would be pulled into that one.
check_port() {
	own=" $(own_pids | tr '\n' ' ')"
	known=''
	for pid in $(listeners); do
		known=1
		case $own in *" $pid "*) continue ;; esac
		command=$(command_of "$pid")
		case $command in
		"$home/"* | "$legacy/"*) ;;
		*) die "$ollama_addr is taken by ${command:-a process} (process $pid). Stop it, or set KTMS_OLLAMA_ADDR=127.0.0.1:PORT to use another port" ;;
		esac
	done
	# Without a tool that lists them, and for processes of other users, a connection tells. curl's 7 is that nobody took it.
	[ -z "$known" ] && [ "$own" = ' ' ] || return 0
	answer=0
	curl -s -o /dev/null --noproxy '*' --connect-timeout 3 --max-time 5 "$ollama_url" || answer=$?
	[ "$answer" = 7 ] || die "$ollama_addr is taken by a process that cannot be named, likely another user's. Stop it, or set KTMS_OLLAMA_ADDR=127.0.0.1:PORT to use another port"
}

# --- installing -------------------------------------------------------------------------------------------------------

install_node() {
	command -v curl >/dev/null || die "curl is missing: install it and try again"
	check_services
	names
	if [ $os = linux ] && ! command -v zstd >/dev/null; then
		die "zstd is missing, which unpacks Ollama (Ubuntu: sudo apt install zstd)"
	fi
	check_port
	hints
	if [ -n "$dry_run" ]; then
		show_plan
		return 0
	fi
	open_stage
	stage_agent
	if [ -n "$schedule" ]; then
		"$agent" schedule --file "$schedule" >/dev/null || die "the schedule is not valid, and nothing was changed"
	fi
	key_source
	read_key
	stage_tunnel
	stage_ollama
	place
	retire_legacy
	start_ollama
	fetch_models
	start_agent
	keep_awake
	wait_registered
	finish
}

hints() {
	if [ $os = linux ] && ! command -v nvidia-smi >/dev/null; then
		note "nvidia-smi is missing, so there is no NVIDIA driver: the model runs on the CPU, slowly"
	fi
	if other=$(command -v ollama) && ! native "$other"; then
		note "ignoring $other: it is an Intel build, which Rosetta would run on the CPU. The node uses its own"
	fi
}

show_plan() {
	say "node $node_id for $proxy${tls:+ over TLS}, model $models, Ollama at $ollama_addr"
	current ktms-node "$agent_sum" "$home/bin/ktms-node" || say "would download $agent_url"
	[ -n "$endpoint" ] || current cloudflared "$tunnel_sum" "$home/bin/cloudflared" || say "would download $tunnel_url"
	program=$(program_in "$home/ollama") || program=$home/ollama/ollama
	if ! current ollama "$ollama_sum" "$program"; then
		if legacy_ollama; then say "would take over $legacy_program"; else say "would download $ollama_file_url"; fi
	fi
	key_source
	case $key_from in
	kept) say "would keep the node key" ;;
	legacy) say "would take over the node key in $legacy_key_file" ;;
	environment) say "would store the node key of NODE_KEY" ;;
	prompt) say "would ask for the node key" ;;
	esac
	[ -z "$schedule" ] || say "would check $schedule and copy it to $home/schedule"
	retire_legacy
	say "would run ${prefix}ollama, ${prefix}node and ${prefix}awake from $units, and pull $models"
	say "nothing was changed"
}

# place puts down what needs no restart to be decided.
place() {
	(umask 077 && mkdir -p "$home")
	chmod 700 "$home"
	mkdir -p "$home/bin" "$home/installed" "$logs" "$units"
	if [ -n "$tunnel_changed" ]; then
		mv -f "$stage/cloudflared" "$home/bin/cloudflared"
		say "$tunnel_sum" >"$home/installed/cloudflared"
	fi
	if [ -n "$schedule" ] && ! cmp -s "$schedule" "$home/schedule"; then
		cp "$schedule" "$home/schedule.new"
		mv -f "$home/schedule.new" "$home/schedule"
	fi
}

# start_ollama restarts it only if something changed, and brings a previous one back when the new one does not answer.
start_ollama() {
	if [ -n "$ollama_changed" ]; then
		rm -rf "$home/ollama.previous"
		if [ -d "$home/ollama" ]; then mv "$home/ollama" "$home/ollama.previous"; fi
		mv "$stage/ollama" "$home/ollama"
	fi
	ollama=$(program_in "$home/ollama")
	unit=$(unit_file ollama)
	# The agent unloads and loads by the schedule; Ollama itself shall not forget a model after its usual five minutes.
	service_env="OLLAMA_HOST=$ollama_addr OLLAMA_NUM_PARALLEL=$concurrency OLLAMA_KEEP_ALIVE=-1"
	service_text ollama 5 "$ollama" serve >"$stage/ollama.unit"
	if [ -z "$ollama_changed" ] && cmp -s "$stage/ollama.unit" "$unit" && service_runs "${prefix}ollama"; then
		return 0
	fi
	say "starting Ollama"
	if [ -f "$unit" ]; then cp "$unit" "$stage/ollama.previous.unit"; fi
	cp "$stage/ollama.unit" "$unit"
	if service_start ollama && wait_ollama; then
		say "$ollama_sum" >"$home/installed/ollama"
		rm -rf "$home/ollama.previous"
		return 0
	fi
	if [ ! -d "$home/ollama.previous" ] || [ ! -f "$stage/ollama.previous.unit" ]; then
		die "Ollama does not answer at $ollama_url: see $logs/ollama.log"
	fi
	rm -rf "$home/ollama"
	mv "$home/ollama.previous" "$home/ollama"
	cp "$stage/ollama.previous.unit" "$unit"
	service_start ollama || true
	die "the new Ollama does not start, so the previous one runs again: see $logs/ollama.log"
}

wait_ollama() {
	left=$start_seconds
	down=0
	until curl -fsS -o /dev/null --noproxy '*' --max-time 5 "$ollama_url/api/version" 2>/dev/null; do
		still_starting ollama || return 1
	done
}

ollama_client() { OLLAMA_HOST=${ollama_url#http://} "$ollama" "$@"; }

# fetch_models pulls the models, and loads them unless the schedule has the node paused.
fetch_models() {
	level=''
	if [ -f "$home/schedule" ]; then
		level=$("$agent" schedule --file "$home/schedule") || note "$home/schedule is not valid, so the node runs at 100%"
	fi
	for model in $models; do
		say "pulling $model"
		if ! ollama_client pull "$model"; then
			ollama_client show "$model" >/dev/null 2>&1 || die "the model $model could not be pulled: is that its Ollama tag?"
			note "$model could not be updated, so it stays as it is"
		fi
		case $level in
		'now 0%'*) continue ;;
		esac
		say "loading $model"
		curl -fsS -o /dev/null --noproxy '*' --max-time 900 -d "{\"model\":\"$model\",\"keep_alive\":-1,\"stream\":false}" "$ollama_url/api/generate" ||
			note "$model was not loaded into memory, so the first request waits for it: see $logs/ollama.log"
	done
}

# with_agent_flags runs a command with the agent's flags at its end.
with_agent_flags() {
	set -- "$@" --proxy-addr "$proxy" --node-id "$node_id" --node-key-file "$home/key" \
		--engine ollama --engine-url "$ollama_url" --max-concurrent "$concurrency"
	if [ -n "$tls" ]; then set -- "$@" --tls; fi
	for model in $models; do set -- "$@" --only-model "$model"; done
	if [ -f "$home/schedule" ]; then set -- "$@" --schedule-file "$home/schedule"; fi
	if [ -n "$endpoint" ]; then
		set -- "$@" --endpoint "$endpoint"
	else
		set -- "$@" --expose=cloudflared --cloudflared-path "$home/bin/cloudflared"
	fi
	"$@"
}

# agent_parts lists what a new agent replaces, and a roll-back brings back: NAME FILE
agent_parts() {
	printf '%s\n' "program $home/bin/ktms-node" "sum $home/installed/ktms-node" "key $home/key" \
		"id $home/node-id" "unit $(unit_file node)"
}

# start_agent restarts it only if something changed.
start_agent() {
	log_from=0
	service_env=''
	with_agent_flags service_text node 5 "$home/bin/ktms-node" >"$stage/node.unit"
	if [ -z "$agent_changed$tunnel_changed" ] && [ ! -f "$stage/key" ] &&
		cmp -s "$stage/node.unit" "$(unit_file node)" && service_runs "${prefix}node"; then
		return 0
	fi
	say "starting the agent; one that runs finishes its requests first"
	agent_parts | while read -r part file; do
		if [ -f "$file" ]; then cp -p "$file" "$stage/previous.$part"; fi
	done
	if [ -n "$agent_changed" ]; then
		mv -f "$agent" "$home/bin/ktms-node"
		say "$agent_sum" >"$home/installed/ktms-node"
	fi
	if [ -f "$stage/key" ]; then mv -f "$stage/key" "$home/key"; fi
	say "$node_id" >"$home/node-id"
	cp "$stage/node.unit" "$(unit_file node)"
	if launch_agent; then return 0; fi
	tail -n 3 "$logs/node.log" >&2 || true
	if [ ! -f "$stage/previous.program" ] || [ ! -f "$stage/previous.unit" ]; then
		service_stop "${prefix}node"
		die "the agent does not start: see $logs/node.log"
	fi
	agent_parts | while read -r part file; do
		if [ -f "$stage/previous.$part" ]; then mv -f "$stage/previous.$part" "$file"; fi
	done
	launch_agent || die "the new agent does not start, and the previous one does not either any more: see $logs/node.log"
	die "the new agent does not start, so the previous one runs again: see $logs/node.log"
}

# agent_log prints what the agent said since it was started here, or all of it.
agent_log() { tail -c "+$((log_from + 1))" "$logs/node.log" 2>/dev/null; }

starts() { agent_log | grep -c '"msg":"ktms-node starts"' || true; }

# launch_agent starts the agent, and says whether it keeps running.
launch_agent() {
	rotate "$logs/node.log"
	log_from=0
	if [ -f "$logs/node.log" ]; then log_from=$(($(wc -c <"$logs/node.log"))); fi
	service_start node || return 1
	left=$start_seconds
	down=0
	until [ "$(starts)" -gt 0 ]; do
		still_starting node || return 1
	done
	sleep 2 # one that ends at once is started again, and says so a second time
	[ "$(starts)" = 1 ] && service_runs "${prefix}node"
}

# keep_awake holds the machine awake by a service of its own, so that the agent is the one who is told to stop. A Mac
# is held awake only while plugged in.
keep_awake() {
	unit=$(unit_file awake)
	service_env=''
	if awake=$(command -v caffeinate); then
		set -- -s
	elif awake=$(command -v systemd-inhibit); then
		set -- --what=idle:sleep --who=ktms-node --why='serves requests' --mode=block sleep infinity
	else
		note "systemd-inhibit is missing, so nothing keeps this machine awake"
		return 0
	fi
	service_text awake 60 "$awake" "$@" >"$stage/awake.unit"
	if ! cmp -s "$stage/awake.unit" "$unit" || ! service_runs "${prefix}awake"; then
		cp "$stage/awake.unit" "$unit"
		service_start awake || note "nothing keeps this machine awake: see $logs/awake.log"
	fi
	if [ $os = linux ] && ! loginctl enable-linger 2>/dev/null; then
		note "the services start when you log in, not at boot, until somebody runs: sudo loginctl enable-linger $(id -un)"
	fi
}

registered() {
	agent_log | awk '
		/"msg":"(ktms-node starts|unregistered|stopped)"/ { yes = 0 }
		/"msg":"registered"/ { yes = 1 }
		END { exit !yes }'
}

# last_trouble prints what the agent last complained about.
last_trouble() {
	agent_log | sed -nE 's/.*"level":"(WARN|ERROR)","msg":"(([^"\\]|\\.)*)".*/\2/p' | sed 's/\\"/"/g' | tail -n 1
}

wait_registered() {
	say "waiting until the node is registered"
	left=$wait_seconds
	until registered; do
		if [ "$left" -le 0 ]; then
			die "the agent runs and is not registered yet, and goes on trying. It says: $(last_trouble)
Run the same command with --doctor to see what is wrong; the log is $logs/node.log"
		fi
		left=$((left - 1))
		sleep 1
	done
}

finish() {
	if [ -n "$level" ]; then say "Schedule: $level"; fi
	say "Node $node_id is running and registered"
}

# --- the doctor, and the end ------------------------------------------------------------------------------------------

# doctor adds what the agent cannot know of itself: whether its services run.
doctor() {
	check_services
	[ -x "$home/bin/ktms-node" ] || die "there is no node on this machine yet: run the same command without --doctor"
	problems=''
	for name in ollama node; do
		if ! service_runs "$prefix$name"; then
			problems=1
			say "PROBLEM  the service $prefix$name does not run: see $logs/$name.log, and run the same command without --doctor"
		fi
	done
	with_agent_flags "$home/bin/ktms-node" doctor --model "${models%% *}" || problems=1
	say "logs are in $logs"
	[ -z "$problems" ] || exit 1
}

uninstall() {
	check_services
	for name in node ollama awake; do
		unit=$(unit_file "$name")
		if [ -f "$unit" ]; then
			plan "stop $prefix$name and remove $unit" remove_service "$name" "$unit"
		fi
	done
	retire_legacy
	if [ $os = linux ] && [ -z "$dry_run" ]; then
		systemctl --user daemon-reload
	fi
	if [ -d "$home" ]; then plan "remove $home" rm -rf "$home"; fi
	if [ -n "$purge_backups" ] && [ -d "$backups" ]; then plan "remove $backups" rm -rf "$backups"; fi
	if [ -n "$dry_run" ]; then
		say "nothing was changed"
		return 0
	fi
	say "the node is removed; downloaded models stay in $HOME/.ollama"
	if [ -d "$backups" ]; then say "what the old node left is in $backups; --purge-backups removes it"; fi
}

remove_service() {
	service_stop "$prefix$1"
	rm -f "$2"
}

main "$@"
