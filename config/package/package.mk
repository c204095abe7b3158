# package.mk: installs what `make` has built, and makes packages of it. Included by the Makefile.
#
#   make install     under PREFIX (/usr/local), for a staged copy below DESTDIR; needs no network
#   make uninstall   removes these files; the configuration and models stay
#   make tarball     build/inferd-VERSION-linux-ARCH.tar.xz, to unpack in /
#   make deb         build/deb/inferd_VERSION_ARCH.deb, and the package of its debug symbols
#   make package-check   lintian, and the package in a booted Debian (tests/package/boot); part of
#                        `make check`
#
# Variables: PREFIX, DESTDIR, SYSCONFDIR, UNITDIR, SYSUSERSDIR, ZSHDIR; STRIP=: keeps the symbols.

PREFIX      ?= /usr/local
SYSCONFDIR  ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR     ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
ZSHDIR      ?= $(PREFIX)/share/zsh/site-functions
STRIP       ?= strip
INSTALL     ?= install

# Manual pages and completions, made by a program that includes the tables.
PAGES      := $(addprefix $(BUILD)/pages/,inferd.8 inferd.conf.5 bash zsh fish)
PAGE_PARTS := scripts/options.h config/options.def config/commands.def engine/base/error.def engine/defaults.h
$(BUILD)/manual: scripts/manual.c $(PAGE_PARTS)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -I. $(WARN) -o $@ $<
$(PAGES): $(BUILD)/manual
	@mkdir -p $(@D)
	$(Q)$(BUILD)/manual $(@F) $(VERSION) > $@
.PHONY: pages install uninstall tarball deb
pages: $(PAGES)

# The unit and the configuration name files; the source has the paths of a distribution's package.
paths = sed -e 's|/usr/bin/|$(PREFIX)/bin/|g' -e 's|/usr/share/inferd|$(PREFIX)/share/inferd|g' \
  -e 's|/etc/inferd|$(SYSCONFDIR)/inferd|g'
PROGRAMS := inferd inferd-bench inferd-pull
PLUGINS := $(notdir $(MPI_PLUGIN))
MONITORING := alerts.yml dashboard.json
MODEL_FILES := $(notdir $(wildcard models/demo/*))
INSTALLED = $(PROGRAMS:%=$(PREFIX)/bin/%) $(PLUGINS:%=$(PREFIX)/lib/inferd/%) $(PROGRAMS:%=$(PREFIX)/share/man/man8/%.8) \
  $(PREFIX)/share/man/man5/inferd.conf.5 $(PREFIX)/share/bash-completion/completions/inferd \
  $(ZSHDIR)/_inferd $(PREFIX)/share/fish/vendor_completions.d/inferd.fish \
  $(UNITDIR)/inferd.service $(UNITDIR)/inferd.socket $(SYSUSERSDIR)/inferd.conf \
  $(MONITORING:%=$(PREFIX)/share/inferd/monitoring/%) \
  $(MODEL_FILES:%=$(PREFIX)/share/inferd/models/demo/%)

# An existing configuration is never overwritten: the new one stands beside it as inferd.conf.new.
install: all pages
	$(INSTALL) -d $(addprefix $(DESTDIR),$(sort $(dir $(INSTALLED)))) $(DESTDIR)$(SYSCONFDIR)/inferd/models.d
	$(INSTALL) -m755 $(PROGRAMS:%=$(BUILD)/%) $(DESTDIR)$(PREFIX)/bin
	$(STRIP) $(PROGRAMS:%=$(DESTDIR)$(PREFIX)/bin/%)
	$(if $(PLUGINS),$(INSTALL) -m644 $(MPI_PLUGIN) $(DESTDIR)$(PREFIX)/lib/inferd)
	$(if $(PLUGINS),$(STRIP) $(PLUGINS:%=$(DESTDIR)$(PREFIX)/lib/inferd/%))
	$(INSTALL) -m644 $(BUILD)/pages/inferd.8 $(DESTDIR)$(PREFIX)/share/man/man8
	for program in inferd-bench inferd-pull; do \
	  echo '.so man8/inferd.8' > $(DESTDIR)$(PREFIX)/share/man/man8/$$program.8; done
	$(INSTALL) -m644 $(BUILD)/pages/inferd.conf.5 $(DESTDIR)$(PREFIX)/share/man/man5
	$(INSTALL) -m644 $(BUILD)/pages/bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/inferd
	$(INSTALL) -m644 $(BUILD)/pages/zsh $(DESTDIR)$(ZSHDIR)/_inferd
	$(INSTALL) -m644 $(BUILD)/pages/fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/inferd.fish
	$(paths) config/inferd.service > $(DESTDIR)$(UNITDIR)/inferd.service
	$(INSTALL) -m644 config/inferd.socket $(DESTDIR)$(UNITDIR)
	$(INSTALL) -m644 config/package/sysusers.conf $(DESTDIR)$(SYSUSERSDIR)/inferd.conf
	$(INSTALL) -m644 $(MONITORING:%=config/monitoring/%) $(DESTDIR)$(PREFIX)/share/inferd/monitoring
	$(INSTALL) -m644 $(MODEL_FILES:%=models/demo/%) $(DESTDIR)$(PREFIX)/share/inferd/models/demo
	new=$(DESTDIR)$(SYSCONFDIR)/inferd/inferd.conf; \
	  if [ -e $$new ]; then new=$$new.new; fi; $(paths) config/inferd.conf > $$new

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir -p --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/share/inferd/models/demo 2>/dev/null

# Two builds of one commit make the same bytes.
EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
TARBALL := $(BUILD)/inferd-$(VERSION)-linux-$(ARCH).tar.xz
tarball: all pages
	rm -rf $(BUILD)/tarball
	@$(MAKE) --no-print-directory install DESTDIR=$(abspath $(BUILD)/tarball)
	tar -C $(BUILD)/tarball --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(EPOCH) \
	  -cJf $(TARBALL) .
	@echo "$(TARBALL)"

# A package of a commit that has no tag is older than the release whose number it carries.
TAG := $(shell git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null)
DEB_VERSION := $(VERSION)$(if $(TAG),,~git$(shell date -u -d @$(EPOCH) +%Y%m%d).$(COMMIT))
DEB_DIR := $(BUILD)/deb
DEB = $(DEB_DIR)/inferd-$(VERSION)
deb: all pages
	rm -rf $(DEB_DIR) && mkdir -p $(DEB)
	cp -r config/package/debian $(DEB)/
	cp -r LICENSE CHANGELOG.md README.md docs $(DEB)/
	printf 'inferd (%s) unstable; urgency=medium\n\n  * CHANGELOG.md has the changes.\n\n -- %s  %s\n' \
	  '$(DEB_VERSION)' 'The inferd authors <maintainers@users.noreply.inferd.example>' \
	  "$$(date -u -R -d @$(EPOCH))" > $(DEB)/debian/changelog
	cd $(DEB) && SOURCE_DATE_EPOCH=$(EPOCH) INFERD_SOURCE=$(CURDIR) INFERD_BUILD=$(abspath $(BUILD)) \
	  INFERD_CUDA=$(CUDA) dpkg-buildpackage --build=binary --no-sign --no-check-builddeps
	@ls $(DEB_DIR)/*.deb

# Makes the packages, installs one into a Debian of its own, boots it and uses it: root, and a mirror
# of Debian.
.PHONY: package-check
package-check:
	@scripts/bootstrap build package
	@$(SUBMAKE) all pages
	tests/package/boot --build $(BUILD)
