/*
 * fault.h - named fault points. Production code asks fault_hit("noun.step") where the world may
 * fail; unarmed it costs one load. Tests arm the nth point met, or every hit of one name.
 */
#pragma once
#include <stdbool.h>

bool fault_hit(const char *name);
void fault_arm(int nth);                    /* the nth point met from now fails once; 0 disarms */
void fault_arm_name(const char *name, int times);
int  fault_seen(void);                      /* points met since the last arm */
