package bbolt

import (
	"fmt"
	"io"
	"log"
	"os"
)

// Logger gets a line when a database is opened and when opening or closing fails.
type Logger interface {
	Debug(v ...interface{})
	Debugf(format string, v ...interface{})
	Error(v ...interface{})
	Errorf(format string, v ...interface{})
	Info(v ...interface{})
	Infof(format string, v ...interface{})
	Warning(v ...interface{})
	Warningf(format string, v ...interface{})
	Fatal(v ...interface{})
	Fatalf(format string, v ...interface{})
	Panic(v ...interface{})
	Panicf(format string, v ...interface{})
}

// DefaultLogger writes to a log of the standard library. EnableDebug lets the lines of Debug through.
type DefaultLogger struct {
	*log.Logger
	debug bool
}

var discardLogger Logger = &DefaultLogger{Logger: log.New(io.Discard, "", 0)}

// EnableTimestamps begins lines with the date and the time.
func (l *DefaultLogger) EnableTimestamps() { l.SetFlags(l.Flags() | log.Ldate | log.Ltime) }

// EnableDebug lets the lines of Debug through.
func (l *DefaultLogger) EnableDebug() { l.debug = true }

func (l *DefaultLogger) say(level, text string) { _ = l.Output(3, level+": "+text) }

func (l *DefaultLogger) Debug(v ...interface{}) {
	if l.debug {
		l.say("DEBUG", fmt.Sprint(v...))
	}
}

func (l *DefaultLogger) Debugf(format string, v ...interface{}) {
	if l.debug {
		l.say("DEBUG", fmt.Sprintf(format, v...))
	}
}

func (l *DefaultLogger) Info(v ...interface{}) { l.say("INFO", fmt.Sprint(v...)) }
func (l *DefaultLogger) Infof(format string, v ...interface{}) {
	l.say("INFO", fmt.Sprintf(format, v...))
}
func (l *DefaultLogger) Warning(v ...interface{}) { l.say("WARN", fmt.Sprint(v...)) }
func (l *DefaultLogger) Warningf(format string, v ...interface{}) {
	l.say("WARN", fmt.Sprintf(format, v...))
}
func (l *DefaultLogger) Error(v ...interface{}) { l.say("ERROR", fmt.Sprint(v...)) }
func (l *DefaultLogger) Errorf(format string, v ...interface{}) {
	l.say("ERROR", fmt.Sprintf(format, v...))
}

// Fatal ends the process.
func (l *DefaultLogger) Fatal(v ...interface{}) {
	l.say("FATAL", fmt.Sprint(v...))
	os.Exit(1)
}

// Fatalf ends the process.
func (l *DefaultLogger) Fatalf(format string, v ...interface{}) {
	l.say("FATAL", fmt.Sprintf(format, v...))
	os.Exit(1)
}

// Panic and Panicf panic.
func (l *DefaultLogger) Panic(v ...interface{})                 { l.Logger.Panic(v...) }
func (l *DefaultLogger) Panicf(format string, v ...interface{}) { l.Logger.Panicf(format, v...) }
